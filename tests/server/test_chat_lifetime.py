"""Queue, heartbeats, disconnects, failure and shutdown: every request ends in form and frees its place."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ninfer_jax.errors import EngineError, ListenError
from ninfer_jax.server.lifecycle import listen
from tests.server.fake_engine import FakeEngine, idle_within, say
from tests.server.harness import LiveServer
from tests.server.test_chat_basics import CHAT, chat, user


def body(text="hello", **members):
    return {"messages": user(text), "stream": True, **members}


def lines_of(server, **members):
    """Status and lines of a stream, comments included."""
    with server.http.stream("POST", CHAT, json=body(**members)) as answer:
        return answer.status_code, [line for line in answer.iter_lines() if line]


class OpenStream:
    """A stream that has had its first line. ``close`` leaves it."""

    def __init__(self, server, **members):
        self._client = httpx.Client(base_url=server.url, timeout=60, trust_env=False)
        request = self._client.build_request("POST", CHAT, json=body(**members))
        self._lines = self._client.send(request, stream=True).iter_lines()
        next(self._lines)

    def close(self):
        self._lines.close()
        self._client.close()


def leave_after(server, seconds, **members):
    """Send a request and close the connection without waiting for the answer."""
    raw = json.dumps(body(**members)).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(
            b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (CHAT.encode(), len(raw))
        )
        connection.sendall(raw)
        time.sleep(seconds)


def test_health_is_503_until_the_model_is_there():
    with LiveServer(None, None) as server:
        answer = server.http.get("/health")
        assert (answer.status_code, answer.json()) == (503, {"status": "unavailable", "model_loaded": False})
        refused = server.http.post(CHAT, json=body())
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_loading")
        assert refused.headers["retry-after"]
        assert server.http.get("/v1/models").status_code == 503


def test_a_full_house_answers_429_at_once(start):
    engine = FakeEngine(max_concurrency=1, max_pending=0, round_seconds=0.005)
    server = start(engine)
    running = OpenStream(server)
    refused = server.http.post(CHAT, json=body())
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "server_overloaded")
    assert refused.headers["retry-after"] == "1"
    assert server.http.get("/health").status_code == 200
    running.close()
    assert idle_within(engine)


def test_a_queue_timeout_before_the_first_byte_is_503(start):
    engine = FakeEngine(max_concurrency=1, pending_timeout=0.1, round_seconds=0.005)
    server = start(engine)
    running = OpenStream(server)
    for stream in (True, False):
        refused = server.http.post(CHAT, json=body(stream=stream))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "request_queue_timeout")
    running.close()


def test_a_queue_timeout_after_a_heartbeat_is_an_error_event(start):
    engine = FakeEngine(max_concurrency=1, pending_timeout=0.4, round_seconds=0.005)
    server = start(engine, heartbeat=0.1)
    running = OpenStream(server)
    status, lines = lines_of(server)
    assert status == 200
    assert lines[0] == ": keep-alive"
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2][6:])["error"]["code"] == "request_queue_timeout"
    running.close()


def test_heartbeats_run_on_the_wall_clock_during_prefill(start):
    engine = FakeEngine(say("done"), prefill_chunk=4, prefill_seconds=0.12)
    server = start(engine, heartbeat=0.1)
    status, lines = lines_of(server)
    assert status == 200
    assert lines.count(": keep-alive") >= 3
    assert lines[-1] == "data: [DONE]"
    assert sum(line.startswith("data: {") for line in lines) >= 3


def test_progress_events_count_as_life(start):
    engine = FakeEngine(say("done"), prefill_chunk=1, prefill_seconds=0.05)
    _, lines = lines_of(start(engine, heartbeat=1.0), return_progress=True)
    progress = [json.loads(line[6:])["prompt_progress"] for line in lines if "prompt_progress" in line]
    assert progress[-1]["total"] > 20  # times 50 ms: longer than a heartbeat
    assert ": keep-alive" not in lines


@pytest.mark.parametrize("stage", ["queue", "prefill", "decode"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place(start, stage, stream):
    prefill = 0.05 if stage == "prefill" else 0.0
    engine = FakeEngine(prefill_chunk=1, prefill_seconds=prefill, round_seconds=0.002)
    server = start(engine)
    running = OpenStream(server) if stage == "queue" else None
    leave_after(server, 0.25, stream=stream)
    if running is not None:
        running.close()
    assert idle_within(engine)
    assert chat(server, max_tokens=1)


def test_an_engine_failure_mid_stream_is_an_error_event(start):
    engine = FakeEngine(round_seconds=0.005)
    server = start(engine)
    threading.Timer(0.2, lambda: engine.fail(EngineError("device lost"))).start()
    status, lines = lines_of(server)
    assert status == 200
    assert json.loads(lines[-2][6:])["error"] == {
        "message": "device lost",
        "type": "server_error",
        "param": None,
        "code": "engine_error",
    }
    assert lines[-1] == "data: [DONE]"
    assert server.http.get("/health").status_code == 503
    assert server.http.post(CHAT, json=body()).status_code == 503


def test_an_engine_failure_before_the_first_byte_is_500(start):
    engine = FakeEngine(round_seconds=0.005)
    server = start(engine)
    threading.Timer(0.2, lambda: engine.fail(EngineError("device lost"))).start()
    assert server.http.post(CHAT, json=body(stream=False)).status_code == 500


def test_two_hundred_connections_at_once_never_hang(start):
    engine = FakeEngine(max_concurrency=8, max_pending=16, round_seconds=0.001)
    server = start(engine)

    limits = httpx.Limits(max_connections=200)
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False, limits=limits) as client:

        def one(number):
            return client.post(CHAT, json=body(f"n{number}", stream=number % 2 == 0, max_tokens=50))

        with ThreadPoolExecutor(200) as pool:
            answers = list(pool.map(one, range(200)))
    statuses = {answer.status_code for answer in answers}
    assert statuses <= {200, 429}
    assert sum(answer.status_code == 200 for answer in answers) >= 24
    assert len({answer.headers["x-request-id"] for answer in answers}) == 200
    assert idle_within(engine)


def test_a_slow_reader_does_not_hold_up_the_engine(start):
    """The other request ends while this one's client takes nothing."""
    text = "x" * 200_000
    engine = FakeEngine(say(text), max_concurrency=2)
    server = start(engine)
    slow = OpenStream(server, max_tokens=4000)
    assert chat(server, max_tokens=500)["usage"]["completion_tokens"] == 500
    slow.close()
    assert idle_within(engine)


def test_draining_finishes_what_runs_and_refuses_what_comes(start):
    go_on = threading.Event()

    def script(request):
        yield from b"y" * 50
        go_on.wait()
        yield from b"y" * 50

    engine = FakeEngine(script, max_concurrency=2)
    server = start(engine, grace=120)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lines_of, server, max_tokens=100)
        while not engine.stats()["running"]:
            time.sleep(0.01)
        server.stop()
        while server.http.get("/health").status_code != 503:
            time.sleep(0.01)
        refused = server.http.post(CHAT, json=body())
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_shutting_down")
        go_on.set()
        status, lines = running.result()
    assert (status, lines[-1]) == (200, "data: [DONE]")
    assert json.loads(lines[-2][6:])["choices"][0]["finish_reason"] == "length"
    assert server.join(60)


def test_what_outlives_the_grace_period_gets_an_error_event(start):
    engine = FakeEngine(round_seconds=0.01)
    server = start(engine, grace=0.3)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lines_of, server, max_tokens=4000)
        while not engine.stats()["running"]:
            time.sleep(0.01)
        server.stop()
        _, lines = running.result()
    assert json.loads(lines[-2][6:])["error"]["code"] == "server_shutting_down"
    assert lines[-1] == "data: [DONE]"
    assert server.join(60)
    assert idle_within(engine)


def test_accepted_connections_notice_dead_peers():
    with listen("127.0.0.1", 0) as listener:
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5


def test_a_port_in_use_is_named():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"port {port} on 127.0.0.1 is in use"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["999.1.1.1", "no.such.host.invalid", "203.0.113.7"])
def test_an_address_that_is_not_ours_is_named(host):
    with pytest.raises(ListenError, match=f"cannot listen on {host}"):
        listen(host, 0)


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "a\udcff"])
def test_a_host_that_is_no_name_at_all_is_refused(host):
    with pytest.raises(ListenError, match="is not a host name"):
        listen(host, 0)
