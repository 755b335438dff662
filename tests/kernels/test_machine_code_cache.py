"""Machine code that is kept on disk: a damaged file or a full disk costs a compilation, never a start."""

import errno
import os

import pytest

from ninfer_jax.kernels.cpu import ffi

SOURCE = "def helper(job):\n    return job + 1\n\n\ndef handler(job):\n    return job + 2\n"


def machine_code(path):
    scope = {}
    exec(compile(SOURCE, str(path), "exec"), scope)
    return [function.ctypes(40) for function in ffi._machine_code(path, scope)]


@pytest.mark.parametrize("size", [0, 30])
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_cut_off_files_are_made_again(tmp_path, monkeypatch, suffix, size):
    pytest.importorskip("numba")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    path = tmp_path / "entry.py"
    path.write_text(SOURCE)
    assert machine_code(path) == [41, 42]
    kept = sorted((tmp_path / "__pycache__").glob(f"*.{suffix}"))
    assert len(kept) == 2
    for file in kept:
        file.write_bytes(file.read_bytes()[:size])
    assert machine_code(path) == [41, 42]
    assert machine_code(path) == [41, 42]
    assert all(file.stat().st_size > size for file in (tmp_path / "__pycache__").iterdir())


@pytest.mark.parametrize("fault", ["full", "no folder"])
def test_a_disk_that_takes_no_files_costs_nothing_else(tmp_path, monkeypatch, caplog, fault):
    pytest.importorskip("numba")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "ninfer-jax" / "numba"
    folder.parent.mkdir()
    if fault == "no folder":
        folder.touch()
    else:

        def full(source, target):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "replace", full)
    ffi._warn_once.cache_clear()
    path = ffi._source_file("entry", SOURCE, machine_code)
    ffi._source_file("another", SOURCE, machine_code)
    assert not path.exists()
    assert fault == "no folder" or list(folder.iterdir()) == []
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        f"cannot keep machine code in {folder}"
    ]
    assert machine_code(path) == [41, 42]
