"""XLA's foreign-function interface for kernels that Numba compiled.

XLA:CPU calls a handler with one pointer, an ``XLA_FFI_CallFrame`` (``xla/ffi/api/c_api.h``, shipped in
``jax.ffi.include_dir()``). ``register`` compiles a handler that views the operands and results as arrays,
asks the kernel how many tasks the call has, and lets XLA's own threads take them one by one
(``tasks.py``): no copy, no Python, no lock, no second thread pool. The frame's fields are 8-byte words,
used here by index:

    0 struct_size  1 extensions  2 api  3 context  4 stage
    5-9   args: struct_size, extensions, count, types, pointers
    10-14 rets: struct_size, extensions, count, types, pointers

and a buffer's are 0 struct_size, 1 extensions, 2 dtype, 3 data, 4 rank, 5 dims.
"""

import ctypes
import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

API_FIELDS_BEFORE_FUNCTIONS = 6
FRAME_FIELDS = ("struct_size", "extension_start", "api", "ctx", "stage", "args", "rets", "attrs")


class Buffer(NamedTuple):
    """An operand's or result's element type and rank; its sizes come with each call."""

    dtype: Any
    ndim: int


@functools.cache
def thread_pool_index() -> int | None:
    """Where ``XLA_FFI_ThreadPool_Schedule`` stands in the ``XLA_FFI_Api`` struct of the installed jaxlib.

    None when its header is not laid out as this file expects: the plain XLA forms then serve.
    """
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h")
    if not header.is_file():
        return None
    text = header.read_text()
    functions = re.findall(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\);", text)
    frame = re.search(r"struct XLA_FFI_CallFrame \{(.*?)\};", text, re.DOTALL)
    fields = re.findall(r"(\w+);", frame[1]) if frame else []
    if tuple(fields[: len(FRAME_FIELDS)]) != FRAME_FIELDS or "XLA_FFI_ThreadPool_Schedule" not in functions:
        return None
    return API_FIELDS_BEFORE_FUNCTIONS + functions.index("XLA_FFI_ThreadPool_Schedule")


@functools.cache
def is_available() -> bool:
    """Whether Numba is installed and this jaxlib's interface is the one we know."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return thread_pool_index() is not None


def _handler_source(buffers: Sequence[tuple[str, int, Buffer]]) -> str:
    """``handler`` and ``helper`` as text: Numba wants straight-line code with literal ranks."""
    views = []
    for number, (kind, index, buffer) in enumerate(buffers):
        pointers = 9 if kind == "args" else 14
        dims = "".join(f"word(d{number}, {axis})," for axis in range(buffer.ndim))
        views += [
            f"    b{number} = word(word(frame, {pointers}), {index})",
            f"    d{number} = word(b{number}, 5)",
            f"    a{number} = carray(as_pointer(word(b{number}, 3)), ({dims}), dtype{number})",
        ]
    arrays = ", ".join(f"a{number}" for number in range(len(buffers)))
    return "\n".join(
        [
            "def run_tasks(frame, job, claimed, epoch):",
            *views,
            "    while claimed >= 0:",
            f"        run(claimed, {arrays})",
            "        fetch_add(job + 8 * DONE, 1)",
            "        claimed = claim(job)",
            "",
            "def handler(frame):",
            "    if not must_execute(frame):",
            "        return 0",
            *views,
            f"    total = count({arrays})",
            "    job = open_job(frame, total)",
            "    if job == 0:",
            "        for task in range(total):",
            f"            run(task, {arrays})",
            "        return 0",
            "    call_helpers(frame, job, total)",
            "    claimed = claim(job)",
            "    while claimed >= 0:",
            f"        run(claimed, {arrays})",
            "        fetch_add(job + 8 * DONE, 1)",
            "        claimed = claim(job)",
            "    close_job(job, total)",
            "    return 0",
            "",
            "def helper(job):",
            "    claimed = claim(job)",
            "    if claimed >= 0:",
            "        run_tasks(word(job, FRAME), job, claimed, 0)",
            "    return 0",
        ]
    )


_registered: dict[str, Any] = {}


def register(
    name: str,
    *,
    count: Callable[..., Any],
    run: Callable[..., Any],
    operands: Sequence[Buffer],
    results: Sequence[Buffer],
) -> None:
    """Make a kernel callable as ``jax.ffi.ffi_call(name, ...)`` on the CPU.

    ``count(*operands, *results) -> int`` says how many independent tasks a call has (under a million) and
    ``run(task, *operands, *results)`` does one; both are njit functions, arrays are C-contiguous views.
    Tasks of a call run at the same time on different threads, each exactly once. Buffers must have the
    stated dtype and rank at each call; whoever builds the ``ffi_call`` checks that. Registering a name
    again does nothing.
    """
    if name in _registered:
        return
    from ninfer_jax.kernels.cpu import tasks  # imports Numba, half a second

    buffers = [("args", i, b) for i, b in enumerate(operands)] + [
        ("rets", i, b) for i, b in enumerate(results)
    ]
    index = thread_pool_index()
    assert index is not None
    handler, helper = tasks.compile_handler(
        _handler_source(buffers), count, run, [b.dtype for _, _, b in buffers], index
    )
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    jax.ffi.register_ffi_target(name, capsule(handler.address, None, None), platform="cpu", api_version=1)
    _registered[name] = (handler, helper)
