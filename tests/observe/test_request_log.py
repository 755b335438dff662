"""The structured log's file: opening it, appending to it, and what is left out."""

import errno
import json
import logging
import os
from pathlib import Path

import pytest

from ninfer_jax.errors import ConfigError
from ninfer_jax.observe.request_log import WARNING_SECONDS, RequestLog, redact


def test_lines_are_appended_and_on_disk_at_once(tmp_path):
    path = tmp_path / "log"
    first = RequestLog(path)
    first.write("server_start", 12.3456, {"a": 1})
    second = RequestLog(path)
    second.write("server_start", 13.0, {"a": 2})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["a"] for line in lines] == [1, 2]
    assert lines[0]["timestamp_unix_ms"] == 12345
    assert lines[0]["schema"] == "ninfer_serve_request_log"
    assert lines[0]["server_instance_id"] != lines[1]["server_instance_id"]
    first.close()
    second.close()


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file") as caught:
        RequestLog(tmp_path / "missing" / "log")
    assert caught.value.field == "--request-log-jsonl"


def test_the_model_is_never_the_log(tmp_path):
    artifact = tmp_path / "m.ninfer"
    artifact.mkdir()
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"GGUF")
    os.link(weights, tmp_path / "hard")
    (tmp_path / "soft").symlink_to(weights)
    (tmp_path / "folder").symlink_to(artifact)
    for path, model in [
        (weights, weights),
        (tmp_path / "hard", weights),
        (tmp_path / "soft", weights),
        (artifact / "log", artifact),
        (tmp_path / "folder" / "log", artifact),
    ]:
        with pytest.raises(ConfigError, match="part of the model"):
            RequestLog(path, model=model)
    assert weights.read_bytes() == b"GGUF"
    assert list(artifact.iterdir()) == []
    RequestLog(tmp_path / "beside", model=weights).close()


class Disk:
    """A file on a disk with ``room`` bytes left: it takes what fits, then refuses, as the kernel does."""

    def __init__(self, room):
        self.room = room
        self.data = b""

    def write(self, data):
        taken = bytes(data[: self.room])
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(taken)
        self.data += taken
        return len(taken)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def full(monkeypatch):
    """``full(room)`` gives a log, its disk and its clock."""

    def begin(room):
        disk, clock = Disk(room), Clock()
        monkeypatch.setattr(Path, "open", lambda *_, **__: disk)
        return RequestLog(Path("log"), clock=clock), disk, clock

    return begin


def numbers_of(data):
    """The events of whole lines; a torn line is none."""
    found = []
    for line in data.split(b"\n"):
        try:
            found.append(json.loads(line)["n"])
        except ValueError:
            continue
    return found


@pytest.mark.parametrize("cut", [1, 20, -2, -1])
def test_a_torn_line_ends_before_the_next_begins(full, cut, caplog):
    log, disk, _ = full(10_000)
    log.write("throughput", 1.0, {"n": 0})
    length = len(disk.data)
    disk.room = cut % length
    log.write("throughput", 1.0, {"n": 1})
    log.write("throughput", 1.0, {"n": 2})
    disk.room = 10_000
    log.write("throughput", 1.0, {"n": 3})
    log.write("throughput", 1.0, {"n": 4})
    only_its_end_missing = [1] if cut == -1 else []
    assert numbers_of(disk.data) == [0, *only_its_end_missing, 3, 4]
    assert b"\n\n" not in disk.data
    assert all(line.startswith(b"{") for line in disk.data.splitlines())


def test_room_for_the_newline_alone_leaves_no_empty_line(full):
    log, disk, _ = full(30)
    log.write("throughput", 1.0, {"n": 0})
    disk.room = 1
    log.write("throughput", 1.0, {"n": 1})
    disk.room = 10_000
    log.write("throughput", 1.0, {"n": 2})
    torn, whole = disk.data.splitlines()
    assert len(torn) == 30
    assert json.loads(whole)["n"] == 2


def test_a_full_disk_is_one_warning_a_minute_and_then_recovery(full, caplog):
    caplog.set_level(logging.INFO, "ninfer_jax")
    log, disk, clock = full(0)
    for _ in range(100):
        log.write("throughput", 1.0, {})
    clock.now += WARNING_SECONDS
    for _ in range(100):
        log.write("throughput", 1.0, {})
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == [
        "cannot write the request log log: No space left on device; 1 events lost so far",
        "cannot write the request log log: No space left on device; 101 events lost so far",
    ]
    assert all(record.exc_info is None for record in caplog.records)
    disk.room = 10_000
    log.write("throughput", 1.0, {"n": 7})
    log.write("throughput", 1.0, {"n": 8})
    assert [record.getMessage() for record in caplog.records[2:]] == [
        "the request log log is written again; 200 events lost"
    ]
    assert numbers_of(disk.data) == [7, 8]
    disk.room = 0
    log.write("throughput", 1.0, {})
    assert caplog.records[-1].levelno == logging.WARNING


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["serve", "--api-key", "k", "--port", "1"], ["serve", "--api-key", "<redacted>", "--port", "1"]),
        (["--api-key=k=k"], ["--api-key=<redacted>"]),
        (["--api-key", "--api-key", "x"], ["--api-key", "<redacted>", "x"]),
        (["--api-key"], ["--api-key"]),
    ],
)
def test_secrets_are_redacted(argv, shown):
    assert redact(argv) == shown
