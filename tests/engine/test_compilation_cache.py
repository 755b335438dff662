"""Compiled programs are kept on disk; a bad file or a full disk is one line and never stops a start."""

import logging
import os
import resource
import warnings
import zlib
from contextlib import contextmanager

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from ninfer_jax.engine import compilation_cache
from ninfer_jax.engine.compilation_cache import CACHE_DIRECTORY, CACHE_SETTINGS, enable_compilation_cache


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """The cache's directory, of this test alone."""
    monkeypatch.setattr(logging.getLogger("ninfer_jax"), "propagate", True)  # for caplog
    before = {name: getattr(jax.config, name) for name in CACHE_SETTINGS}
    with warnings.catch_warnings():
        jax.config.update(CACHE_DIRECTORY, str(tmp_path / "chosen"))
        yield tmp_path / "chosen"
    for name, value in before.items():
        jax.config.update(name, value)
    reset_cache()


def nines(x):
    return x * 5 + 9


def ones(x):
    return x * 3 + 1


def start(*functions):
    """What a process does that starts with this cache."""
    jax.clear_caches()
    reset_cache()
    enable_compilation_cache()
    for function in functions:
        assert jax.jit(function)(np.arange(9))[2] == function(2)


def entries(directory, program=""):
    return sorted(directory.glob(f"jit_{program}*-cache"))


def test_programs_are_kept_in_the_directory_that_jax_was_told_else_in_the_own(
    directory, tmp_path, monkeypatch
):
    start(nines)
    assert entries(directory, "nines")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update(CACHE_DIRECTORY, None)
    assert enable_compilation_cache() == tmp_path / "ninfer-jax" / "xla"


def test_a_directory_that_cannot_be_made_is_told_and_left_out(tmp_path, directory, caplog):
    (tmp_path / "file").touch()
    jax.config.update(CACHE_DIRECTORY, str(tmp_path / "file" / "xla"))
    assert enable_compilation_cache() is None
    assert f"cannot keep compiled programs in {tmp_path / 'file' / 'xla'}" in caplog.text
    start(nines)


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole[:-9], lambda whole: b"\0" * 99])
def test_a_damaged_file_is_told_once_and_made_anew(directory, caplog, damage):
    start(nines, ones)
    (path,), others = entries(directory, "nines"), entries(directory, "ones")
    path.write_bytes(damage(path.read_bytes()))
    start(nines, ones)
    (line,) = caplog.messages
    assert line.startswith(f"compiling jit_nines again: its file in {directory} was damaged (")
    assert compilation_cache.is_whole(path.read_bytes())
    assert entries(directory, "ones") == others
    caplog.clear()
    start(nines, ones)
    assert not caplog.messages


def test_a_file_that_unpacks_to_no_program_is_made_anew(directory, caplog):
    start(nines)
    (path,) = entries(directory, "nines")
    path.write_bytes(zlib.compress(b"\0\0\0\0 no program"))
    stranger = path.with_name("x")
    stranger.write_bytes(b"")  # no entry: stays
    start(nines)
    assert len(caplog.messages) == 1
    caplog.clear()
    start(nines)
    assert not caplog.messages
    assert stranger.exists()


@contextmanager
def full_disk(room):
    """No file may have more than ``room`` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_one_line_and_leaves_no_beginnings(directory, caplog):
    with full_disk(100):
        start(nines, ones)
    (line,) = caplog.messages
    assert line.startswith(
        f"cannot keep compiled programs in {directory}, the next start compiles them again"
    )
    assert not entries(directory)
    caplog.clear()
    start(nines, ones)
    assert entries(directory, "nines")
    assert not caplog.messages


def test_a_damaged_file_that_cannot_be_removed_is_told(directory, caplog, monkeypatch):
    start(nines)
    (path,) = entries(directory, "nines")
    path.write_bytes(b"")

    def refuse(path, missing_ok=False):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(compilation_cache.Path, "unlink", refuse)
    start(nines)
    (line,) = caplog.messages
    assert line.endswith("[Errno 30] Read-only file system)")


def test_other_warnings_are_shown_as_they_were(directory):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        enable_compilation_cache()
        warnings.warn("somebody else's", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in shown] == ["somebody else's"]


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    for age, name in enumerate(("new", "old", "older", "oldest")):
        path = tmp_path / name
        path.write_bytes(bytes(10))
        os.utime(path, (1e9 - age, 1e9 - age))
    os.utime(tmp_path / "oldest", (2e9, 1e9 - 9))  # written first, read last
    compilation_cache.remove_oldest(tmp_path, 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "oldest"]
    compilation_cache.remove_oldest(tmp_path, 20)
    assert len(list(tmp_path.iterdir())) == 2


def test_only_the_own_directory_is_kept_small(directory, tmp_path, monkeypatch):
    monkeypatch.setattr(compilation_cache, "LIMIT", 0)
    start(nines)
    start()
    assert entries(directory, "nines")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update(CACHE_DIRECTORY, None)
    with warnings.catch_warnings():  # what one process sets does not reach the next
        start(nines)
        assert entries(tmp_path / "ninfer-jax" / "xla", "nines")
    start()
    assert not entries(tmp_path / "ninfer-jax" / "xla")
