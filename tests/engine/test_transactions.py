"""Seams for reuse that needs copies: a transaction open across boundaries, chunks cut at frontiers."""

from collections.abc import Iterator
from typing import Any

import pytest

from ninfer_jax.cache import (
    Candidate,
    PageCache,
    ResourceTransaction,
    RootOnlyPolicy,
    TransactionState,
)
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.errors import EngineError
from ninfer_jax.types import FinishReason, PreparedPrompt
from tests.fakes import Recorder, expected_output, fake_engine, fake_request, fake_storage

CONFIG = EngineConfig(max_context=256, kv_capacity=1024, max_concurrency=3, prefill_chunk=64)


class SlowTransaction:
    """Commits (or aborts) at the ``looks``-th look."""

    def __init__(self, inner: ResourceTransaction, looks: int, outcome: TransactionState) -> None:
        self.candidate = inner.candidate
        self._inner = inner
        self._looks = looks
        self._outcome = outcome

    def progress(self) -> TransactionState:
        self._looks -= 1
        if self._looks > 0:
            return TransactionState.IN_FLIGHT
        if self._outcome is TransactionState.ABORTED:
            self._inner.abort()
        return self._outcome

    def abort(self) -> None:
        self._inner.abort()


class SlowCache(PageCache):
    """Every transaction after the first ``num_fast`` is slow."""

    def __init__(self, looks: int, outcome: TransactionState, num_fast: int) -> None:
        super().__init__(fake_storage(16))
        self.looks, self.outcome, self.num_fast = looks, outcome, num_fast

    def begin(
        self, task_id: int, lane: int, prompt: PreparedPrompt, num_pages: int, candidate: Candidate
    ) -> ResourceTransaction:
        inner = super().begin(task_id, lane, prompt, num_pages, candidate)
        if self.num_fast > 0:
            self.num_fast -= 1
            return inner
        return SlowTransaction(inner, self.looks, self.outcome)


class CaptureCache(PageCache):
    """Wants the state kept at two points inside every prompt."""

    def capture_frontiers(self, prompt: PreparedPrompt, base: int) -> tuple[int, ...]:
        return tuple(position for position in (10, 70) if base < position < len(prompt.token_ids))


def submit(engine: HostEngine, prompt: range, num_tokens: int) -> tuple[Any, Recorder]:
    recorder, reservation = Recorder(), engine.reserve()
    reservation.submit(fake_request(prompt, num_tokens), recorder)
    return reservation, recorder


def run_to_end(engine: HostEngine, *recorders: Recorder) -> Iterator[None]:
    for _ in range(300):
        if all(recorder.terminal for recorder in recorders):
            break
        yield None
        engine.thread.step()
        assert engine.thread.failure is None
        engine.scheduler.services.cache.check()
    assert all(recorder.terminal for recorder in recorders)


def test_53_one_transaction_is_open_and_decode_goes_on() -> None:
    engine = fake_engine(CONFIG, start=False, cache=SlowCache(9, TransactionState.COMMITTED, num_fast=1))
    _, first = submit(engine, range(30), 40)
    for _ in range(3):
        engine.thread.step()
    _, second = submit(engine, range(100, 140), 10)
    _, third = submit(engine, range(200, 240), 10)
    open_rounds = 0
    for _ in run_to_end(engine, first, second, third):
        gauges = engine.stats()["gauges"]
        assert gauges["materializing"] <= 1
        if gauges["materializing"]:
            open_rounds += 1
            assert not second.admitted or not third.admitted
            assert first.terminal is None
    assert open_rounds >= 8
    assert second.tokens == expected_output(range(100, 140), 10)
    assert third.tokens == expected_output(range(200, 240), 10)
    engine.shutdown()


def test_52_an_aborted_transaction_fails_its_request_and_leaks_nothing() -> None:
    cache = SlowCache(3, TransactionState.ABORTED, num_fast=0)
    engine = fake_engine(CONFIG, start=False, cache=cache)
    _, first = submit(engine, range(30), 40)
    for _ in run_to_end(engine, first):
        pass
    assert isinstance(first.failed.error, EngineError)
    assert first.admitted == []
    assert cache.counts().held == 0
    cache.num_fast = 1
    _, second = submit(engine, range(30), 4)
    for _ in run_to_end(engine, second):
        pass
    assert second.tokens == expected_output(range(30), 4)
    engine.shutdown()


def test_a_request_can_be_cancelled_while_its_transaction_is_open() -> None:
    cache = SlowCache(1000, TransactionState.COMMITTED, num_fast=0)
    engine = fake_engine(CONFIG, start=False, cache=cache)
    reservation, recorder = submit(engine, range(30), 40)
    for _ in range(5):
        engine.thread.step()
    assert cache.counts().held == 2
    reservation.cancel()
    for _ in range(2):
        engine.thread.step()
    assert recorder.finished.reason is FinishReason.CANCELLED
    assert recorder.admitted == []
    assert cache.counts().held == 0
    engine.shutdown()


def test_an_open_transaction_does_not_stop_the_thread() -> None:
    cache = SlowCache(20, TransactionState.COMMITTED, num_fast=0)
    engine = fake_engine(CONFIG, cache=cache)
    _, recorder = submit(engine, range(30), 4)
    assert recorder.wait().tokens == expected_output(range(30), 4)
    engine.shutdown()


@pytest.mark.parametrize(("chunk", "expected"), [(64, [0, 10, 70, 100]), (25, [0, 10, 35, 60, 70, 95, 100])])
def test_prefill_chunks_end_at_capture_frontiers(chunk: int, expected: list[int]) -> None:
    config = EngineConfig(max_context=256, kv_capacity=1024, max_concurrency=1, prefill_chunk=chunk)
    engine = fake_engine(config, start=False, cache=CaptureCache(fake_storage(16), RootOnlyPolicy()))
    _, recorder = submit(engine, range(100), 3)
    for _ in run_to_end(engine, recorder):
        pass
    assert [event.processed for event in recorder.progress] == expected
    assert recorder.tokens == expected_output(range(100), 3)
    engine.shutdown()
