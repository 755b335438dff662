"""``ninfer-jax serve`` as a process: start-up, the contract of its exit codes, and the way it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from ninfer_jax.cli.bench_server import free_port
from ninfer_jax.cli.serve import Startup
from ninfer_jax.errors import EngineError, ModelLoadError
from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.server.resident import Resident
from tests.artifact import checkpoints

ROOT = Path(__file__).parents[2]
CHAT = "/v1/chat/completions"
MILESTONES = ("listening on", "loading tiny", "loaded tiny", "compiling, or reading from", "ready in")
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    hf_config = checkpoints.config()
    path = tmp_path_factory.mktemp("serve") / "tiny.gguf"
    return checkpoints.write_gguf(path, hf_config, checkpoints.tensors(hf_config))


def command(*arguments):
    return [sys.executable, "-m", "ninfer_jax", "serve", *map(str, arguments)]


def run_serve(*arguments, **environ):
    env = {**os.environ, **environ}
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=60, cwd=ROOT, env=env, check=False
    )


class Running:
    """A serve process on a free port whose log can be read when it has ended."""

    def __init__(self, *arguments, launch=command):
        self.port = free_port()
        flags = ["--port", self.port, "--max-context", 128, "--prefill-chunk", 16]
        flags += ["--max-concurrency", 2]  # the same programs everywhere: compiled once
        self.process = subprocess.Popen(
            launch(*arguments, *flags), stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, trust_env=False)

    def health(self):
        try:
            return self.http.get("/health").status_code
        except httpx.TransportError:
            return None

    def wait_ready(self):
        seen = set()
        while (status := self.health()) != 200:
            seen.add(status)
            assert self.process.poll() is None, self.process.stderr.read()
            time.sleep(0.02)
        return seen

    def end(self, number=signal.SIGTERM):
        """Exit code and log."""
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=60)
        self.http.close()
        return self.process.returncode, log


def test_a_life(model):
    server = Running(model)
    assert 503 in server.wait_ready()  # it listens before it is ready
    answer = server.http.post(CHAT, json={**HELLO, "max_tokens": 4})
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] <= 4
    assert server.http.get("/stats").json()["counters"]["requests_submitted"] == 1
    assert b"ninfer:prompt_tokens_total" in server.http.get("/metrics").content
    code, log = server.end()
    assert code == 0
    assert [log.index(words) for words in MILESTONES] == sorted(log.index(words) for words in MILESTONES)
    assert f"http://127.0.0.1:{server.port} serves" in log
    for line in ("weights in int8", "KV pools of 128 tokens in float32", "state of 2 sequences", "headroom"):
        assert f"INFO   {line}" in log
    assert f"curl http://127.0.0.1:{server.port}/v1/chat/completions" in log
    assert "Hello" not in log
    assert "\x1b" not in log


def test_sigterm_under_load_ends_every_stream(model):
    server = Running(model, "--shutdown-grace-ms", 200)
    server.wait_ready()
    bodies = []

    def one():
        body = {**HELLO, "max_tokens": 10_000, "stream": True, "ignore_eos": True}
        with server.http.stream("POST", CHAT, json=body) as answer:
            bodies.append((answer.status_code, answer.read().decode()))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(30)
    assert server.process.wait(30) == 0
    server.process.stderr.close()
    server.http.close()
    for status, text in bodies:
        assert (status == 503) or text.endswith("data: [DONE]\n\n")
        if status == 503:
            assert json.loads(text)["error"]["code"] == "server_shutting_down"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_ends_it(model, number):
    server = Running(model)
    while server.health() is None:
        time.sleep(0.02)
    code, _ = server.end(number)
    assert code == 0


def test_a_port_in_use_is_exit_1(model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_serve(model, "--port", port)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (["--max-concurrency", "9"], {}, "--max-concurrency must be an integer from 1 to 8"),
        (["--max-contxt", "9"], {}, "unknown flag --max-contxt; did you mean --max-context?"),
        (
            ["--model", "x.gguf"],
            {},
            "unknown flag --model; the model is named without one: ninfer-jax serve MODEL",
        ),
        ([], {"NINFER_PORT": "web"}, "NINFER_PORT must be an integer"),
        (["--request-log-jsonl", "/no/such/folder/x"], {}, "cannot open /no/such/folder/x"),
    ],
)
def test_a_wrong_configuration_is_exit_2_before_anything_loads(arguments, environ, said):
    done = run_serve("/no/such/model", *arguments, **environ)
    assert done.returncode == 2
    assert said in done.stderr
    assert "loading" not in done.stderr


def test_a_model_that_cannot_be_served_is_exit_1(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03\x00")
    for path in (tmp_path / "broken.gguf", tmp_path, tmp_path / "absent"):
        done = run_serve(path, "--port", 0)
        assert done.returncode == 1
        assert "error:" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


def test_a_context_larger_than_the_model_is_refused(model):
    done = run_serve(model, "--port", 0, "--max-context", 1_000_000)
    assert done.returncode == 2
    assert "--max-context" in done.stderr.splitlines()[-1]


def test_a_pool_larger_than_the_memory_is_refused_before_anything_is_uploaded(model):
    done = run_serve(model, "--port", 0, "--max-context", 128, "--kv-capacity", 10**12)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert re.search(r"error: cpu has .* available, .* are needed \(weights in int8 .*KV pools", last)
    assert "--kv-capacity " in last
    assert "loaded" not in done.stderr


def test_a_stop_before_the_loading_thread_has_run_ends_at_once(monkeypatch):
    """The interpreter cannot end in order beside a thread that imports jax."""

    class Exited(Exception):
        pass

    def leave(code):
        assert code == 0
        raise Exited

    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    monkeypatch.setattr(os, "_exit", leave)
    startup = Startup(ServeOptions(), None, Resident(), ServeMonitor(interval=0))
    startup.begin(("127.0.0.1", 1), lambda: None)
    with pytest.raises(Exited):
        startup.finish()


def test_a_failed_load_is_no_longer_a_load_when_the_server_is_told_to_end():
    """It would pass for a stop while loading, which is exit 0."""
    startup = Startup(ServeOptions(), Path("/no/such/model"), Resident(), ServeMonitor(interval=0))
    ends = []

    def give_up():
        with pytest.raises(ModelLoadError):
            startup.finish()
        ends.append(True)

    startup.load(("127.0.0.1", 1), give_up)
    assert ends == [True]


@pytest.mark.parametrize("exits", [True, False])
def test_an_engine_failure_ends_the_process_only_if_asked(exits):
    startup = Startup(ServeOptions(exit_on_failure=exits), None, Resident(), ServeMonitor(interval=0))
    asked_to_stop = []
    startup.engine_failed(lambda: asked_to_stop.append(True), RuntimeError("device lost"))
    assert bool(asked_to_stop) is exits
    if exits:
        with pytest.raises(EngineError, match="the engine has failed"):
            startup.finish()
    else:
        assert startup.finish() == 0
