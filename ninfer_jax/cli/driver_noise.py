"""XLA's GPU compiler on a machine without a GPU, without its remarks that there is none.

They are written by C++ when its libraries are loaded, before any log level is read.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NOISE = (
    "All log messages before absl::InitializeLog() is called",
    "Could not find cuda drivers on your machine",
)

_FILTER = """
import sys
noise = [text.encode() for text in sys.argv[1:]]
for line in sys.stdin.buffer:
    if not any(text in line for text in noise):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
"""
_WAIT_SECONDS = 5.0


@contextmanager
def without_driver_noise() -> Iterator[None]:
    """Meanwhile all that this process writes to stderr, by Python or not, passes through another that drops
    the lines of ``NOISE``. It passes on the last words of a process that aborts, too."""
    if importlib.util.find_spec("jax_plugins") is None:  # nothing of CUDA will be loaded
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    child = subprocess.Popen([sys.executable, "-I", "-c", _FILTER, *NOISE], stdin=subprocess.PIPE)
    assert child.stdin is not None
    os.dup2(child.stdin.fileno(), 2)
    child.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_WAIT_SECONDS)
