"""The structured log's file: opening it, appending to it, and what is left out."""

import json
import os

import pytest

from ninfer_jax.errors import ConfigError
from ninfer_jax.observe.request_log import RequestLog, redact


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
