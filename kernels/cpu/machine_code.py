"""A kernel's machine code in this process: read from disk, or made by the builder and kept there.

Files lie under ``kernels`` in :func:`cache_home`, named by everything the code is made from, each behind a
digest of itself: what a full disk or a crash has cut off is made again. Only LLVM's loader is imported
here, a fifth of what Numba takes, and only where a kernel is called.
"""

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import tempfile
import time
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ninfer_jax.cache_home import cache_home
from ninfer_jax.kernels.cpu.builder import builder
from ninfer_jax.kernels.cpu.kernel import Kernel
from ninfer_jax.kernels.cpu.places import ENTRY, ENTRY_SYMBOL, NUM_HELPERS, PLACES_SYMBOL

logger = logging.getLogger(__name__)

DIGEST_BYTES = 32
KEPT_DAYS = 60
"""After so long without use a file is removed, when another is written."""


def entry_address(kernel: Kernel, schedule: int) -> int:
    """Where the kernel's code begins, for XLA to call. It stays in this process to its end."""
    path = _path(kernel, schedule)
    code = _read(path)
    if code is None:
        code = builder.build(kernel, schedule)
        _keep(path, code)
    return _load(code)


def can_compile() -> bool:
    """Whether Numba is installed and works, which a builder is asked once for each of the versions that
    decide it; else one line of the log says why not."""
    try:
        versions = " ".join(_versions())
    except metadata.PackageNotFoundError:
        return False
    known = cache_home() / "kernels" / f"compiler-{hashlib.sha256(versions.encode()).hexdigest()[:16]}"
    if known.exists():
        return True
    fault = builder.fault()
    if fault is not None:
        logger.warning("kernels for this processor cannot be compiled: %s", fault)
        return False
    with contextlib.suppress(OSError):  # a disk that takes no files: the next start asks again
        known.parent.mkdir(exist_ok=True)
        known.touch()
    return True


def _versions() -> list[str]:
    """Of what makes machine code. PackageNotFoundError where a part is not installed."""
    return [f"{name} {metadata.version(name)}" for name in ("numba", "llvmlite", "numpy")]


def _load(code: bytes) -> int:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
    engine.finalize_object()
    entry: int = engine.get_function_address(ENTRY_SYMBOL)
    places = ctypes.cast(engine.get_global_value_address(PLACES_SYMBOL), ctypes.POINTER(ctypes.c_int64))
    places[ENTRY], places[NUM_HELPERS] = entry, len(os.sched_getaffinity(0)) - 1
    engine.detach()  # XLA's threads may still run the code when Python takes its objects apart
    return entry


@functools.cache
def _source_digest(module: str) -> bytes:
    """Of everything that the code of kernels in ``module`` is made from."""
    import llvmlite.binding as llvm

    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    folders = {Path(__file__).parent, Path(spec.origin).parent}
    files = [file for folder in sorted(folders) for file in sorted(folder.glob("*.py"))]
    host = [llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    parts = [*(text.encode() for text in (*_versions(), *host)), *(file.read_bytes() for file in files)]
    return hashlib.sha256(b"\0".join(parts)).digest()


def _path(kernel: Kernel, schedule: int) -> Path:
    source = _source_digest(kernel.code.partition(":")[0])
    digest = hashlib.sha256(source + f"{kernel} {schedule}".encode()).hexdigest()
    return cache_home() / "kernels" / f"{kernel.name}-{digest[:16]}.o"


def _read(path: Path) -> bytes | None:
    """The code, or None where there is none or not all of it."""
    try:
        content = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    code = content[DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == content[:DIGEST_BYTES] else None


def _keep(path: Path, code: bytes) -> None:
    """All of it or nothing, whoever else writes the same file; and nothing on a disk that takes no files."""
    try:
        path.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
            try:
                file.write(hashlib.sha256(code).digest() + code)
                file.flush()
                os.replace(file.name, path)
            except OSError:
                os.unlink(file.name)
                raise
        oldest = time.time() - KEPT_DAYS * 86400
        for other in path.parent.iterdir():
            if other.stat().st_mtime < oldest:
                other.unlink(missing_ok=True)
    except OSError as error:
        _warn_once(f"cannot keep machine code in {path.parent}: {error.strerror}")


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning("%s", message)
