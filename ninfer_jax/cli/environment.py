"""What a process must have in its environment before jax is imported; jax reads these only then."""

import os
from collections.abc import MutableMapping

from ninfer_jax.cache_home import cache_home
from ninfer_jax.engine.gpu_targets import POOL_FRACTION

POOL_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
"""jax's name for the share of a GPU that its allocator takes, and the older one; both at once are refused."""


def prepare(environ: MutableMapping[str, str] | None = None) -> None:
    """Set defaults for jax; what the user has set stays. Call before anything imports jax.

    Every compiled program is kept, however small: a server has many of them, and a start that
    compiles nothing is the difference between seconds and a minute.
    """
    environ = os.environ if environ is None else environ
    if "JAX_COMPILATION_CACHE_DIR" not in environ:
        environ["JAX_COMPILATION_CACHE_DIR"] = str(cache_home(environ) / "xla")
    environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    if not any(name in environ for name in POOL_VARIABLES):
        environ[POOL_VARIABLES[0]] = str(POOL_FRACTION)
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA's own log lines are not the operator's
