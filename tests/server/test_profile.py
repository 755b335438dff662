"""``POST /profile``: who may, how long, and one at a time."""

import threading
from pathlib import Path

import pytest

from ninfer_jax.errors import ConfigError
from tests.server.test_options import options

KEY = {"x-api-key": "secret"}


def test_a_capture_answers_with_its_folder(start):
    asked = []
    server = start(capture=lambda seconds: (asked.append(seconds), Path("/traces/1"))[1], api_key="secret")
    answer = server.http.post("/profile", json={"seconds": 0.5}, headers=KEY)
    assert (answer.status_code, answer.json()) == (200, {"folder": "/traces/1"})
    assert server.http.post("/profile", json={}, headers=KEY).status_code == 200
    assert asked == [0.5, 3.0]


@pytest.mark.parametrize("seconds", [0, 61, -1, "3", True])
def test_seconds_are_bounded(start, seconds):
    server = start(capture=lambda seconds: Path("/traces"), api_key="secret")
    answer = server.http.post("/profile", json={"seconds": seconds}, headers=KEY)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "seconds"


def test_it_needs_the_key_and_the_flag(start):
    server = start(capture=lambda seconds: Path("/traces"), api_key="secret")
    assert server.http.post("/profile", json={}).status_code == 401
    assert start(api_key="secret").http.post("/profile", json={}, headers=KEY).status_code == 404
    with pytest.raises(ConfigError, match="--profile-dir needs an --api-key"):
        options("--profile-dir", "/traces")
    assert options("--profile-dir", "/traces", "--api-key", "k").profile_dir == "/traces"


def test_one_capture_at_a_time(start):
    running, done = threading.Event(), threading.Event()

    def capture(seconds):
        running.set()
        assert done.wait(10)
        return Path("/traces/1")

    server = start(capture=capture, api_key="secret")
    answers = []
    first = threading.Thread(
        target=lambda: answers.append(server.http.post("/profile", json={}, headers=KEY))
    )
    first.start()
    assert running.wait(10)
    assert server.http.post("/profile", json={}, headers=KEY).status_code == 429
    done.set()
    first.join()
    assert answers[0].status_code == 200
