"""Memory that start-up used and the process still holds."""

import ctypes
import gc


def return_freed_memory() -> None:
    """Give what is free in the heap back to the system: compiling leaves hundreds of megabytes there that
    nothing asks for again. glibc's ``malloc_trim``; nothing happens where the C library has none."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
