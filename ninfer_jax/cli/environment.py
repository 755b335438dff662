"""What a process must have in its environment before jax is imported; jax reads these only then."""

import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path


def cache_home(environ: MutableMapping[str, str]) -> Path:
    """The folder for what this project may lose and make again: compiled programs, converted files.

    It exists and can be written: the user's cache, or where that cannot be (a container with a read-only
    home) a private folder in the temporary directory.
    """
    base = environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "ninfer-jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _private_temporary_folder()


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
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA's own log lines are not the operator's


def _private_temporary_folder() -> Path:
    """The same one at each start, unless somebody else has made it: programs are read from there."""
    folder = Path(tempfile.gettempdir()) / f"ninfer-jax-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat(follow_symlinks=False).st_uid == os.getuid() and not folder.is_symlink():
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="ninfer-jax-"))
