"""Reservations: bounded, returned exactly once, whichever thread lets go first."""

import threading
import time
from typing import Any

import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.engine.observer import NullObserver
from ninfer_jax.errors import (
    EngineError,
    EngineUnavailableError,
    QueueTimeoutError,
    ServerOverloadedError,
)
from ninfer_jax.types import Admitted, Failed, Finished, FinishReason, GenerationRequest
from tests.fakes import FakeExecutor, Recorder, expected_output, fake_engine, fake_request

CONFIG = EngineConfig(max_context=512, kv_capacity=1024, max_concurrency=2, max_pending_requests=2)


def outstanding(engine: HostEngine) -> int:
    return int(engine.stats()["outstanding"])


def test_17_a_place_comes_back_when_the_request_has_ended_and_the_consumer_let_go() -> None:
    engine = fake_engine(CONFIG, start=False)
    recorder, reservation = Recorder(), engine.reserve()
    reservation.submit(fake_request(range(10), 50), recorder)
    engine.thread.step()
    reservation.release()
    assert outstanding(engine) == 1, "the request still runs"
    for _ in range(3):
        engine.thread.step()
    reservation.release()
    assert outstanding(engine) == 0
    assert recorder.terminal is None, "nobody listens any more"
    assert engine.stats()["counters"]["requests_finished"]["cancelled"] == 1


def test_17_a_finished_request_keeps_its_place_until_released() -> None:
    engine = fake_engine(CONFIG, start=False)
    reservations = []
    for _ in range(4):
        recorder = Recorder()
        reservations.append(engine.reserve())
        reservations[-1].submit(fake_request([1], 1), recorder)
    for _ in range(30):
        engine.thread.step()
    with pytest.raises(ServerOverloadedError):
        engine.reserve()
    reservations[2].release()
    engine.reserve().release()
    assert outstanding(engine) == 3


def test_cancel_before_submit() -> None:
    engine = fake_engine(CONFIG, start=False)
    recorder, reservation = Recorder(), engine.reserve()
    reservation.cancel()
    reservation.submit(fake_request([1], 5), recorder)
    engine.thread.step()
    assert recorder.finished.reason is FinishReason.CANCELLED
    assert recorder.admitted == []


def test_a_place_takes_one_request_and_none_after_release() -> None:
    engine = fake_engine(CONFIG, start=False)
    reservation = engine.reserve()
    reservation.submit(fake_request([1], 5), Recorder())
    with pytest.raises(EngineError, match="has a request already"):
        reservation.submit(fake_request([1], 5), Recorder())
    other = engine.reserve()
    other.release()
    with pytest.raises(EngineUnavailableError):
        other.submit(fake_request([1], 5), Recorder())


def test_16_preparation_counts_against_the_deadline() -> None:
    now = [100.0]
    config = EngineConfig(max_context=512, kv_capacity=512, pending_timeout=5.0)
    engine = fake_engine(config, start=False, now=lambda: now[0])
    late, waiting, running = engine.reserve(), engine.reserve(), engine.reserve()
    assert late.deadline == 105.0
    first, second = Recorder(), Recorder()
    running.submit(fake_request([1], 400), first)
    engine.thread.step()
    now[0] = 104.0
    waiting.submit(fake_request([1], 5), second)
    engine.thread.step()
    now[0] = 105.0
    with pytest.raises(QueueTimeoutError):
        late.submit(fake_request([1], 5), Recorder())
    engine.thread.step()
    assert isinstance(second.failed.error, QueueTimeoutError)
    assert first.terminal is None, "an admitted request has no deadline"
    assert engine.stats()["counters"]["queue_timeouts"] == 1


def test_many_threads_reserve_submit_cancel_and_release() -> None:
    engine = fake_engine(CONFIG)
    outcomes: list[str] = []

    def client(number: int) -> None:
        for turn in range(25):
            try:
                reservation = engine.reserve()
            except ServerOverloadedError:
                outcomes.append("overloaded")
                continue
            recorder = Recorder()
            prompt = [number, turn] * 20
            reservation.submit(fake_request(prompt, 12), recorder)
            if turn % 3 == 1:
                reservation.cancel()
            if turn % 3 == 2:
                reservation.release()
            else:
                tokens = recorder.wait().tokens
                assert tokens == expected_output(prompt, 12)[: len(tokens)]
            reservation.release()
            outcomes.append("done")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert len(outcomes) == 150
    assert engine.drain(timeout=60.0)
    engine.shutdown()
    engine.scheduler.services.cache.check()
    assert engine.scheduler.services.cache.counts().held == 0


def test_drain_lets_running_requests_finish() -> None:
    executor = FakeExecutor(2, 16)
    executor.during_wait = lambda: time.sleep(0.001)
    engine = fake_engine(CONFIG, executor=executor)
    recorder, reservation = Recorder(), engine.reserve()
    prepared = engine.reserve()
    reservation.submit(fake_request(range(10), 40), recorder)
    assert not engine.drain(timeout=0.01)
    with pytest.raises(EngineUnavailableError):
        engine.reserve()
    assert engine.health().ok
    late = Recorder()
    prepared.submit(fake_request([1], 3), late)
    assert recorder.wait().tokens == expected_output(range(10), 40)
    assert late.wait().tokens == expected_output([1], 3)
    reservation.release()
    prepared.release()
    assert engine.drain(timeout=60.0)
    engine.shutdown()


def test_the_observer_sees_each_step_once() -> None:
    seen: list[tuple[Any, ...]] = []

    class Observer(NullObserver):
        def submitted(self, request: GenerationRequest, at: float) -> None:
            seen.append(("submitted", request.request_id))

        def admitted(self, request: GenerationRequest, event: Admitted, queue_seconds: float) -> None:
            seen.append(("admitted", request.request_id, event.cached_tokens))

        def output(self, request: GenerationRequest, num: int, completion_tokens: int, at: float) -> None:
            seen.append(("output", num, completion_tokens))

        def finished(self, request: GenerationRequest, event: Finished) -> None:
            seen.append(("finished", event.reason))

        def failed(self, request: GenerationRequest, event: Failed) -> None:
            seen.append(("failed", request.request_id, event.error.code))

        def round(self, num_rows: int, num_tokens: int, at: float) -> None:
            seen.append(("round", num_rows, num_tokens))

    engine = fake_engine(CONFIG, start=False, observer=Observer())
    engine.reserve().submit(fake_request([1], 2, request_id="a"), Recorder())
    for _ in range(4):
        engine.thread.step()
    engine.reserve().submit(fake_request([1], 2, request_id="b"), Recorder())
    engine.shutdown()
    assert seen == [
        ("submitted", "a"),
        ("admitted", "a", 0),
        ("output", 1, 1),
        ("round", 1, 1),
        ("output", 1, 2),
        ("finished", FinishReason.OUTPUT_LIMIT),
        ("failed", "b", "engine_unavailable"),
    ]
