"""A device that breaks under a serving process: every answer ends in form, then the process too."""

import json
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.test_serve import CHAT, HELLO, Running, model

__all__ = ["model"]

BREAKING = """
import sys
import time
from ninfer_jax.cli import environment
environment.prepare()
from ninfer_jax.cli.main import main
from ninfer_jax.engine.runner import DeviceRunner
from ninfer_jax.engine.thread import EngineThread
decode, post, posted, seen = DeviceRunner.decode, EngineThread.post, [], []
def count(self, request):
    post(self, request)
    posted.append(request)
def break_down(self, lanes, *arguments):
    while len(posted) < 4:  # until all clients have arrived
        time.sleep(0.001)
    seen.append(len(lanes))
    if len(seen) == 40:
        assert 2 in seen
        raise RuntimeError("device lost")
    return decode(self, lanes, *arguments)
EngineThread.post, DeviceRunner.decode = count, break_down
sys.exit(main(["serve", *sys.argv[1:]]))
"""


def breaking(*arguments):
    """The command line of a server whose 40th decode round raises."""
    return [sys.executable, "-c", BREAKING, *map(str, arguments), "--kv-capacity", "512"]


@pytest.fixture
def start(model):
    """``start(*flags)`` gives a ready server that will break; it never outlives the test."""
    running = []

    def begin(*flags):
        server = Running(model, *flags, launch=breaking)
        running.append(server)
        server.wait_ready()
        return server

    yield begin
    for server in running:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


def until_it_breaks(server):
    """(status, body) of two streams and two aggregates; two of the four run, two wait. The first is a
    stream that has begun before the others come."""
    has_begun = threading.Event()

    def one(stream):
        body = {**HELLO, "max_tokens": 100, "stream": stream, "ignore_eos": True}
        with server.http.stream("POST", CHAT, json=body) as answer:
            has_begun.set()
            return answer.status_code, answer.read().decode()

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(one, True)
        assert has_begun.wait(60)
        others = list(pool.map(one, (True, False, False)))
        return [first.result(), *others]


def check_answers(answers, log):
    """Those who had a first byte got an error event, the rest a 500; the log has one terminal for each."""
    for status, text in answers:
        if status == 200:
            lines = [line for line in text.split("\n") if line]
            assert lines[-1] == "data: [DONE]"
            assert json.loads(lines[-2][6:])["error"]["code"] == "engine_error"
        else:
            assert (status, json.loads(text)["error"]["code"]) == (500, "engine_error")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    started = [event["request_id"] for event in events if event["event"] == "request_start"]
    errors = [event for event in events if event["event"] == "request_error"]
    assert sorted(event["request_id"] for event in errors) == sorted(started)
    assert {event["error"]["code"] for event in errors} == {"engine_error"}
    assert len(started) == 4
    assert not [event for event in events if event["event"] == "request_done"]


def test_exit_on_failure_answers_everybody_and_exits_1(start, tmp_path):
    log = tmp_path / "log.jsonl"
    server = start("--exit-on-failure", "--request-log-jsonl", log)
    answers = until_it_breaks(server)
    _, shown = server.process.communicate(timeout=60)
    server.http.close()
    assert server.process.returncode == 1
    assert shown.splitlines()[-1] == "ninfer-jax serve: error: the engine has failed"
    assert "CRITICAL the engine has failed: RuntimeError" in shown
    assert {200, 500} == {status for status, _ in answers}
    check_answers(answers, log)


def test_without_it_health_stays_503_until_somebody_acts(start, tmp_path):
    log = tmp_path / "log.jsonl"
    server = start("--request-log-jsonl", log)
    answers = until_it_breaks(server)
    health = server.http.get("/health")
    assert (health.status_code, health.json()) == (503, {"status": "unavailable", "model_loaded": True})
    refused = server.http.post(CHAT, json=HELLO)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_unavailable")
    assert server.http.get("/stats").json()["gauges"]["running"] == 0
    assert server.process.poll() is None
    code, _ = server.end(signal.SIGTERM)
    assert code == 0
    check_answers(answers, log)
