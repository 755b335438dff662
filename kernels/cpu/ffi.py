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
import hashlib
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ninfer_jax.cache_home import cache_home

logger = logging.getLogger(__name__)

API_FIELDS_BEFORE_FUNCTIONS = 6
FRAME_FIELDS = ("struct_size", "extension_start", "api", "ctx", "stage", "args", "rets", "attrs")

ELEMENTS = {"int8": np.int8, "float32": np.float32, "bfloat16": np.uint16}
"""Weight formats, and what Numba sees of them."""


struct: Any = jax.ShapeDtypeStruct
"""A result's shape and dtype, for ``ffi_call``; jax leaves its constructor without types."""


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


def _nothing(*arrays: Any) -> None:
    """What a kernel has to do before and after its tasks, unless it says otherwise."""


def _handler_source(buffers: Sequence[tuple[str, int, Buffer]], schedule: int) -> str:
    """``handler`` and ``helper`` as text: Numba wants straight-line code with literal ranks."""
    views = []
    for number, (kind, index, buffer) in enumerate(buffers):
        pointers = 9 if kind == "args" else 14
        dims = "".join(f"word(d{number}, {axis})," for axis in range(buffer.ndim))
        views += [
            f"    b{number} = word(word(frame, {pointers}), {index})",
            f"    d{number} = word(b{number}, 5)",
            f"    a{number} = carray(as_pointer(word(b{number}, 3)), ({dims}), np.{np.dtype(buffer.dtype)})",
        ]
    arrays = ", ".join(f"a{number}" for number in range(len(buffers)))
    run_and_claim = [
        f"        run(claimed, {arrays})",
        "        fetch_add(job + 8 * DONE, 1)",
        "        claimed = claim(job)",
    ]
    lines = [
        "def handler(frame):",
        "    if not must_execute(frame):",
        "        return 0",
        *views,
        f"    prepare({arrays})",
        f"    total = count({arrays})",
        "    job = open_job(places(), frame, total)",
        "    if job == 0:",
        "        for task in range(total):",
        f"            run(task, {arrays})",
        f"        finish({arrays})",
        "        return 0",
        f"    call_helpers(places(), frame, job, total, {schedule})",
        "    claimed = claim(job)",
        "    while claimed >= 0:",
        *run_and_claim,
        "    close_job(job, total)",
        f"    finish({arrays})",
        "    return 0",
        "",
        "def helper(job):",
        "    claimed = claim(job)",
        "    while claimed >= 0:",
        "        frame = word(job, FRAME)",  # of the job that was claimed: the last one may have ended
        *(f"    {view}" for view in views),
        *run_and_claim,
        "    return 0",
    ]
    return "\n".join(lines) + "\n"


def _source_file(name: str, source: str, kernel: Callable[..., Any]) -> Path:
    """Where a handler's text lies, so that Numba keeps its machine code beside it. The name holds a digest
    of everything that the code is made from, since Numba looks at no other file. Nothing lies there when
    the disk is full or takes no files: the code is then made for this process alone."""
    folder = cache_home() / "numba"
    files = [*sorted(Path(__file__).parent.glob("*.py")), Path(kernel.__code__.co_filename)]
    parts = [source.encode(), *(file.read_bytes() for file in files)]
    path = folder / f"{name}_{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}.py"
    try:
        folder.mkdir(exist_ok=True)
        if not path.exists():
            _write_whole(path, source)
    except OSError as error:
        _warn_once(f"cannot keep machine code in {folder}: {error.strerror}")
    return path


def _write_whole(path: Path, text: str) -> None:
    """All of it or nothing, whoever else writes the same file."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning("%s", message)


def _machine_code(path: Path, scope: Mapping[str, Any]) -> tuple[Any, Any]:
    """``helper`` and ``handler``, compiled or read from what Numba keeps beside ``path``. Files there that
    cannot be read, cut off by a full disk or a crash, are removed, to be made again by the next process."""
    import numba  # half a second

    def compiled(*, cache: bool) -> tuple[Any, Any]:
        entry = numba.cfunc(numba.int64(numba.int64), cache=cache)
        return entry(scope["helper"]), entry(scope["handler"])

    try:
        return compiled(cache=True)
    except Exception:  # unpickling damaged bytes can raise anything; a fault of the code comes again below
        for kept in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            kept.unlink(missing_ok=True)
        return compiled(cache=False)


_registered: dict[str, Any] = {}
_lock = threading.Lock()
"""Threads may trace programs at the same time, and a kernel has one set of job places."""


def register(
    name: str,
    *,
    count: Callable[..., Any],
    run: Callable[..., Any],
    operands: Sequence[Buffer],
    results: Sequence[Buffer],
    prepare: Callable[..., Any] | None = None,
    finish: Callable[..., Any] | None = None,
) -> None:
    """Make a kernel callable as ``jax.ffi.ffi_call(name, ...)`` on the CPU.

    ``count(*operands, *results) -> int`` says how many independent tasks a call has (under a million) and
    ``run(task, *operands, *results)`` does one; both are njit functions, arrays are C-contiguous views.
    Tasks of a call run at the same time on different threads, each exactly once, after
    ``prepare(*operands, *results)`` and before ``finish(*operands, *results)``. Buffers must have the
    stated dtype and rank at each call; whoever builds the ``ffi_call`` checks that. Registering a name
    again does nothing. The machine code is kept under ``numba`` in :func:`cache_home`.
    """
    with _lock:
        if name not in _registered:
            _registered[name] = _compile(name, (prepare, count, run, finish), operands, results)


def _compile(
    name: str,
    functions: Sequence[Callable[..., Any] | None],
    operands: Sequence[Buffer],
    results: Sequence[Buffer],
) -> tuple[Any, Any]:
    """Compile and register; the entry points of XLA and of its threads, to be kept alive."""
    import numba

    from ninfer_jax.kernels.cpu import intrinsics, tasks

    schedule = thread_pool_index()
    assert schedule is not None
    buffers = [("args", i, b) for i, b in enumerate(operands)]
    buffers += [("rets", i, b) for i, b in enumerate(results)]
    source = _handler_source(buffers, schedule)
    symbol = f"{name}_places"
    places = tasks.allocate_places(symbol)
    scope = {**vars(intrinsics), **vars(tasks), "carray": numba.carray}
    scope |= {
        part: function or numba.njit(_nothing)
        for part, function in zip(("prepare", "count", "run", "finish"), functions, strict=True)
    }
    scope |= {"places": intrinsics.symbol_address(symbol)}
    path = _source_file(name, source, scope["run"].py_func)
    exec(compile(source, str(path), "exec"), scope)
    helper, handler = _machine_code(path, scope)
    places[tasks.HELPER] = helper.address
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    jax.ffi.register_ffi_target(name, capsule(handler.address, None, None), platform="cpu", api_version=1)
    return handler, helper
