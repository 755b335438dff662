"""XLA's foreign-function interface: how a kernel's machine code becomes a custom call.

XLA:CPU calls a handler with one pointer, an ``XLA_FFI_CallFrame`` (``xla/ffi/api/c_api.h``, shipped in
``jax.ffi.include_dir()``); ``entry.py`` reads it. This is the part that knows jaxlib's header.
"""

import contextlib
import ctypes
import functools
import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax

from ninfer_jax.kernels.cpu import machine_code
from ninfer_jax.kernels.cpu.kernel import Kernel

API_FIELDS_BEFORE_FUNCTIONS = 6
FRAME_FIELDS = ("struct_size", "extension_start", "api", "ctx", "stage", "args", "rets", "attrs")


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
    """Whether this process computes on its CPU, kernels can be compiled for it, and this jaxlib's interface
    is the one we know. (Programs are traced for every platform: who serves on a GPU would compile them too.)
    """
    on_cpu = jax.default_backend() == "cpu"
    return on_cpu and thread_pool_index() is not None and machine_code.can_compile()


_registered: set[str] = set()
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""Threads may trace programs at the same time, and a kernel has one set of job places."""

_together: ContextVar[dict[str, Kernel] | None] = ContextVar("together", default=None)


@contextlib.contextmanager
def kernels_together() -> Iterator[None]:
    """Within it a program may be traced, not compiled or run. The kernels it calls are made ready when it
    ends, beside each other: at a first start all of them have to be compiled."""
    kernels: dict[str, Kernel] = {}
    token = _together.set(kernels)
    try:
        yield
    finally:
        _together.reset(token)
        with ThreadPoolExecutor(os.cpu_count() or 1, "kernels") as pool:
            list(pool.map(_register, kernels.values()))


def _register(kernel: Kernel) -> None:
    """Tell XLA where the kernel's machine code begins, once."""
    with _locks[kernel.name]:
        if kernel.name in _registered:
            return
        schedule = thread_pool_index()
        assert schedule is not None
        address = machine_code.entry_address(kernel, schedule)
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype = ctypes.py_object
        capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        target = capsule(address, None, None)
        jax.ffi.register_ffi_target(kernel.name, target, platform="cpu", api_version=1)
        _registered.add(kernel.name)


def call(kernel: Kernel, *operands: jax.Array, shapes: Sequence[tuple[int, ...]]) -> list[jax.Array]:
    """The kernel's results, of these ``shapes``. See ``is_available``."""
    for (name, buffer), operand in zip(kernel.operands.items(), operands, strict=True):
        size = operand.dtype.itemsize
        assert (size, operand.ndim) == (buffer.dtype.itemsize, buffer.ndim), f"{kernel.name}: {name}"
    if (together := _together.get()) is None:
        _register(kernel)
    else:
        together[kernel.name] = kernel
    struct: Any = jax.ShapeDtypeStruct  # jax leaves its constructor without types
    results = [struct(shape, b.dtype) for shape, b in zip(shapes, kernel.results.values(), strict=True)]
    numbers = [{name: i for i, name in enumerate(names)} for names in (kernel.operands, kernel.results)]
    aliases = {numbers[0][operand]: numbers[1][result] for result, operand in kernel.aliases.items()}
    target: Any = jax.ffi.ffi_call(kernel.name, results, input_output_aliases=aliases)
    return list(target(*operands))
