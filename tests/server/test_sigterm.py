"""SIGTERM while a long prompt is prefilled: what runs ends in form, and the process exits with 0."""

import json
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.cli.test_serve import CHAT, Running, model

__all__ = ["model"]

GATED = """
import sys
import time
from pathlib import Path
from ninfer_jax.cli import environment
environment.prepare()
from ninfer_jax.cli.main import main
from ninfer_jax.engine.runner import DeviceRunner
prefill, gate = DeviceRunner.prefill, Path({gate!r})
class Held:
    def __init__(self, pending):
        self.pending = pending
    def wait(self):
        while not gate.exists():
            time.sleep(0.01)
        return self.pending.wait()
DeviceRunner.prefill = lambda self, *arguments, **members: Held(prefill(self, *arguments, **members))
sys.exit(main(["serve", *sys.argv[1:]]))
"""
PROMPT = {"messages": [{"role": "user", "content": "a long prompt " * 6}], "temperature": 0, "max_tokens": 2}


@pytest.fixture
def gate(tmp_path):
    """While this file is gone the device finishes no chunk of a prompt."""
    path = tmp_path / "gate"
    path.touch()
    yield path
    path.touch()


@pytest.fixture
def start(model, gate):
    running = []

    def launch(*arguments):
        return [sys.executable, "-c", GATED.format(gate=str(gate)), *map(str, arguments)]

    def begin(*flags):
        server = Running(model, *flags, launch=launch)
        running.append(server)
        server.wait_ready()
        gate.unlink()
        return server

    yield begin
    for server in running:
        server.http.close()
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


def stop_during_prefill(server, then=lambda: None):
    """The lines of a stream that had its first progress when the signal came, and the answer of an
    aggregate request that waited beside it. ``then`` is called after the signal."""
    url = f"http://127.0.0.1:{server.port}"
    body = {**PROMPT, "stream": True, "return_progress": True}
    aggregate, lines = None, []
    with (
        ThreadPoolExecutor(1) as pool,
        httpx.Client(base_url=url, timeout=60) as http,
        http.stream("POST", CHAT, json=body) as answer,
    ):
        for line in filter(None, answer.iter_lines()):
            lines.append(line)
            if aggregate is None and "prompt_progress" in line:
                aggregate = pool.submit(httpx.post, url + CHAT, json=PROMPT, timeout=60)
                while server.http.get("/stats").json()["outstanding"] < 2:
                    time.sleep(0.01)
                server.process.send_signal(signal.SIGTERM)
                then()
        return lines, aggregate.result()


def test_a_prompt_that_is_being_prefilled_is_finished(start, gate):
    server = start("--shutdown-grace-ms", 60_000)

    def go_on_when_draining():
        while server.health() != 503:
            time.sleep(0.01)
        gate.touch()

    lines, aggregate = stop_during_prefill(server, go_on_when_draining)
    _, log = server.process.communicate(timeout=60)
    assert server.process.returncode == 0
    assert lines[-1] == "data: [DONE]"
    last = json.loads(lines[-2][6:])
    assert last["choices"][0]["finish_reason"] in ("length", "stop")
    progress = [json.loads(line[6:])["prompt_progress"] for line in lines if "prompt_progress" in line]
    assert progress[0]["processed"] < progress[-1]["processed"] == progress[-1]["total"]
    assert aggregate.status_code == 200
    assert aggregate.json()["choices"][0]["finish_reason"] in ("length", "stop")
    assert "received SIGTERM, draining" in log
    assert log.splitlines()[-1].endswith("stopped")


def test_a_prefill_that_outlives_the_grace_period_ends_in_form(start, gate):
    server = start("--shutdown-grace-ms", 0)
    lines, aggregate = stop_during_prefill(server)
    gate.touch()
    _, log = server.process.communicate(timeout=60)
    assert server.process.returncode == 0
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2][6:])["error"]["code"] == "server_shutting_down"
    assert (aggregate.status_code, aggregate.json()["error"]["code"]) == (503, "server_shutting_down")
    assert "Traceback" not in log
