"""Machine code on disk, and the process that makes it."""

import errno
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ninfer_jax.kernels.cpu import Kernel, builder, ffi, floats, machine_code
from ninfer_jax.kernels.cpu.ffi import thread_pool_index

CODE = "tests.kernels.row_number_code"


def kernel(name: str = "test_kept_code", function: str = "add_row_numbers") -> Kernel:
    return Kernel(name, f"{CODE}:{function}", {"x": floats(2)}, {"out": floats(2)})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        machine_code.builder, "build", lambda kernel, schedule: b"code of " + kernel.name.encode()
    )
    monkeypatch.setattr(machine_code, "_load", len)
    machine_code._warn_once.cache_clear()
    return tmp_path / "ninfer-jax" / "kernels"


def test_code_is_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = machine_code.entry_address(kernel(), 0)
    monkeypatch.setattr(machine_code.builder, "build", None)
    assert machine_code.entry_address(kernel(), 0) == first
    assert len(list(folder.iterdir())) == 1


def test_what_the_code_is_made_from_names_the_file(folder: Path) -> None:
    for one, schedule in [
        (kernel(), 0),
        (kernel(), 1),
        (kernel("test_other"), 0),
        (kernel(function="broken"), 0),
    ]:
        machine_code.entry_address(one, schedule)
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize("size", [0, 20, 32, 40])
def test_a_cut_off_file_is_made_again(folder: Path, size: int) -> None:
    expected = machine_code.entry_address(kernel(), 0)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    assert machine_code.entry_address(kernel(), 0) == expected
    assert file.read_bytes() == whole


@pytest.mark.parametrize("fault", ["full", "no folder"])
def test_a_disk_that_takes_no_files_costs_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    folder.parent.mkdir()
    if fault == "no folder":
        folder.touch()
    else:

        def full(source: str, target: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "replace", full)
    with caplog.at_level(logging.WARNING):
        for name in ("test_one", "test_two"):
            assert machine_code.entry_address(kernel(name), 0)
    assert fault == "no folder" or list(folder.iterdir()) == []
    messages = [record.getMessage().partition(": ")[0] for record in caplog.records]
    assert messages == [f"cannot keep machine code in {folder}"]


def test_code_that_nobody_uses_is_removed(folder: Path) -> None:
    machine_code.entry_address(kernel("test_used"), 0)
    machine_code.entry_address(kernel("test_forgotten"), 0)
    for file in folder.iterdir():
        os.utime(file, (0, 0))
    machine_code.entry_address(kernel("test_used"), 0)
    machine_code.entry_address(kernel("test_new"), 0)
    assert sorted(file.name.partition("-")[0] for file in folder.iterdir()) == ["test_new", "test_used"]


@pytest.fixture(scope="module")
def one_builder():
    one = builder.Builder()
    yield one
    one.close()


def test_a_kernel_that_does_not_compile_says_why_and_the_builder_goes_on(
    one_builder: builder.Builder,
) -> None:
    schedule = thread_pool_index()
    with pytest.raises(RuntimeError, match="test_kept_code does not compile") as error:
        one_builder.build(kernel(function="broken"), schedule)
    assert "y" in str(error.value)
    (process,) = one_builder._idle
    assert one_builder.build(kernel(), schedule)[:4] == b"\x7fELF"
    assert one_builder._idle == [process]


@pytest.mark.parametrize("executable", ["/nowhere/python", "", None])
def test_without_its_process_this_one_compiles(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, executable: str | None
) -> None:
    one = builder.Builder()
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(builder, "compiled", lambda kernel, schedule: b"here")
    with caplog.at_level(logging.WARNING):
        assert one.build(kernel(), 0) == b"here"
    assert "compiling in this process" in caplog.text


def test_a_builder_that_was_killed_is_replaced(one_builder: builder.Builder) -> None:
    one_builder.build(kernel(), thread_pool_index())
    (process,) = one_builder._idle
    process.kill()
    process.wait()
    assert one_builder.build(kernel(), thread_pool_index())[:4] == b"\x7fELF"


def test_a_kernel_that_kills_its_builders_is_an_error(one_builder: builder.Builder) -> None:
    with pytest.raises(RuntimeError, match=r"test_kept_code does not compile:\n.*ended with status -6"):
        one_builder.build(kernel(function="deadly"), thread_pool_index())
    assert one_builder.build(kernel(), thread_pool_index())[:4] == b"\x7fELF"


def test_an_interrupted_request_leaves_no_answer_for_the_next(
    one_builder: builder.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(pipe: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(builder.pickle, "load", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one_builder.build(kernel(function="broken"), thread_pool_index())
    assert one_builder.build(kernel(), thread_pool_index())[:4] == b"\x7fELF"


def test_numbas_switches_are_not_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    one = builder.Builder()
    assert one.build(kernel(), thread_pool_index())[:4] == b"\x7fELF"
    one.close()


def test_a_builder_at_work_ends_with_its_asker() -> None:
    process = builder._start()
    assert process.stdin is not None
    assert process.stdout is not None
    builder.pickle.dump((kernel(function="endless"), 0), process.stdin)
    process.stdin.flush()
    process.stdin.close()
    assert process.wait() == 0
    process.stdout.close()


def test_numba_that_cannot_be_imported_leaves_plain_xla(tmp_path: Path) -> None:
    """As one does that was made for an older NumPy: installed, and refusing."""
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('Numba needs an older NumPy')")
    program = (
        "import jax.numpy as jnp;"
        "from ninfer_jax.kernels.cpu import is_available;"
        "from ninfer_jax.kernels.linear import linear;"
        "assert not is_available();"
        "assert (linear(jnp.ones((2, 8)), jnp.ones((3, 8))) == 8).all()"
    )
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ended = subprocess.run(
        [sys.executable, "-c", program], check=True, env=environment, capture_output=True, text=True
    )
    assert "cannot be compiled: ImportError: Numba needs an older NumPy" in ended.stderr
    assert not list((tmp_path / "cache").rglob("compiler-*"))


def test_without_numba_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise machine_code.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(machine_code.metadata, "version", missing)
    monkeypatch.setattr(machine_code.builder, "fault", None)
    assert not machine_code.can_compile()


def test_a_builder_is_asked_once_what_it_can_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["LLVM is broken", None])
    monkeypatch.setattr(machine_code.builder, "fault", lambda: next(answers))
    assert [machine_code.can_compile() for _ in range(4)] == [False, True, True, True]


def test_kernels_are_not_for_who_computes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffi.jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(ffi.machine_code, "can_compile", None)
    assert not ffi.is_available.__wrapped__()


def test_idle_builders_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "IDLE_SECONDS", 0.05)
    one = builder.Builder()
    one.build(kernel(), thread_pool_index())
    while one._idle:
        time.sleep(0.01)


def test_a_process_that_serves_holds_no_compiler() -> None:
    program = (
        "import sys, jax.numpy as jnp; from ninfer_jax.kernels.rms_norm import rms_norm;"
        "rms_norm(jnp.ones((2, 8)), jnp.ones(8), 1e-6).block_until_ready();"
        "assert 'numba' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
