"""The real host engine behind real HTTP, over the fake device: what its contract promises to clients."""

import json
import socket
import time

import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.types import TextDelta
from tests.fakes import FakeSession, expected_output, fake_engine
from tests.server.fake_frontend import ByteFrontend
from tests.server.harness import LiveServer
from tests.server.test_chat_basics import CHAT, chat, user

CONFIG = EngineConfig(max_context=4096, kv_capacity=8192, max_concurrency=2, prefill_chunk=64)
FORCED = (7, 8, 9)


class NumberFrontend(ByteFrontend):
    """Answers are the device's tokens as numbers; ``forces`` and ``padding`` go to every session."""

    def __init__(self, *, forces=None, padding=""):
        super().__init__(4096)
        self._forces, self._padding = forces, padding

    def session(self, prepared, **options):
        return PaddedSession(self._padding, self._forces)


class PaddedSession(FakeSession):
    """Each token's text is its number, ``padding`` and a space."""

    def __init__(self, padding, forces):
        super().__init__(forces=forces)
        self._padding = padding

    def commit(self, token_ids):
        super().commit(token_ids)
        return (TextDelta("content", "".join(f"{token}{self._padding} " for token in token_ids)),)


@pytest.fixture
def serve():
    """``serve(config, frontend)`` gives (server, engine); both end with the test."""
    running = []

    def begin(config=CONFIG, frontend=None):
        engine = fake_engine(config)
        server = LiveServer(engine, frontend or NumberFrontend())
        running.append((server, engine))
        return server.__enter__(), engine

    yield begin
    for server, engine in running:
        server.__exit__()
        engine.shutdown()


def numbers(answer):
    return [int(word) for word in answer["choices"][0]["message"]["content"].split()]


def counters(server):
    return server.http.get("/stats").json()["counters"]


def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def test_no_tokens_asked_for_means_prefill_and_no_round(serve):
    server, _ = serve()
    answer = chat(server, messages=user("x" * 150), max_tokens=0)
    assert numbers(answer) == []
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    seen = counters(server)
    assert seen["computed_prefill_tokens"] == answer["usage"]["prompt_tokens"] > 150
    assert seen["decode_rounds"] == seen["first_tokens"] == 0


@pytest.mark.parametrize("reuse", [True, False])
def test_reuse_changes_what_is_computed_and_not_what_is_said(serve, reuse):
    config = EngineConfig(
        max_context=4096, kv_capacity=8192, max_concurrency=2, prefill_chunk=64, prefix_reuse=reuse
    )
    server, _ = serve(config)
    first, second = (chat(server, messages=user("x" * 300), max_tokens=20, seed=1) for _ in range(2))
    assert numbers(first) == numbers(second)
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert (cached >= 256) if reuse else cached == 0
    assert counters(server)["reused_prompt_tokens"] == cached
    total = first["usage"]["prompt_tokens"] + second["usage"]["prompt_tokens"]
    assert counters(server)["computed_prefill_tokens"] == total - cached


def test_forced_tokens_are_part_of_the_answer_and_of_what_follows(serve):
    server, _ = serve(frontend=NumberFrontend(forces={4: FORCED}))
    answer = chat(server, max_tokens=20, seed=5)
    said = numbers(answer)
    assert answer["usage"]["completion_tokens"] == len(said) == 20
    assert tuple(said[4:7]) == FORCED
    assert counters(server)["committed_control_tokens"] == len(FORCED)
    prompt = [*b"<user>hello\n<assistant>", *said[:7]]  # what follows was drawn after the forced tokens
    assert said[7:] == expected_output(prompt, 13, seed=5)


def test_a_client_that_leaves_is_gone_within_one_unit(serve):
    server, engine = serve()
    executor = engine.scheduler.services.executor
    executor.during_wait = lambda: time.sleep(0.02)
    left_at = []
    reserve = engine.reserve

    def watched():
        reservation = reserve()
        release = reservation.release

        def let_go():
            left_at.append(len(executor.units))
            release()

        reservation.release = let_go
        return reservation

    engine.reserve = watched
    with server.http.stream("POST", CHAT, json={"messages": user("a"), "stream": True}) as answer:
        next(answer.iter_lines())
    until(lambda: engine.stats()["outstanding"] == 0)
    (units,) = left_at
    assert len(executor.units) - units <= 1
    assert not executor.lanes


def test_a_reader_that_does_not_read_delays_nobody_and_is_bounded(serve):
    """One request's client takes nothing; its rounds go on with everybody else's, it ends in the engine,
    and what waits for it is one merged event. Then it reads, and has everything."""
    tokens = 1500
    server, engine = serve(frontend=NumberFrontend(padding="." * 8000))
    body = {"messages": user("slow"), "stream": True, "max_tokens": tokens, "seed": 3}
    raw = json.dumps(body).encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(
            b"POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            % (CHAT.encode(), len(raw))
        )
        slow.sendall(raw)
        until(lambda: engine.stats()["gauges"]["decode_ready"] == 1)
        assert len(numbers_of_padded(chat(server, max_tokens=40))) == 40
        until(lambda: sum(counters(server)["requests_finished"].values()) == 2, seconds=60)
        assert engine.stats()["gauges"]["running"] == 0
        assert engine.stats()["outstanding"] == 1  # its reservation is its consumer's until that has let go
        (channel,) = server.resident._running
        assert len(channel._waiting) <= 3
        received = b""
        while piece := slow.recv(1 << 20):
            received += piece
    assert received.count(b"." * 8000) == tokens
    assert b"data: [DONE]" in received
    until(lambda: engine.stats()["outstanding"] == 0)


def numbers_of_padded(answer):
    return [int(word.rstrip(".")) for word in answer["choices"][0]["message"]["content"].split()]
