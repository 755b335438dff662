"""The engine with its thread over the fake device: one request after another, many at once."""

import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.errors import (
    ContextLengthExceededError,
    EngineUnavailableError,
    InvalidPromptError,
    ServerOverloadedError,
)
from ninfer_jax.types import Admitted, FinishReason, Output, PrefillProgress
from tests.fakes import FakeSession, Recorder, expected_output, fake_engine, fake_request

CONFIG = EngineConfig(max_context=1024, kv_capacity=4096, max_concurrency=4, prefill_chunk=100)


@pytest.fixture
def engine():
    engine = fake_engine(CONFIG)
    yield engine
    engine.shutdown()
    assert not engine.thread.is_alive


def run(engine: HostEngine, prompt, num_tokens, **options) -> Recorder:
    recorder = Recorder()
    reservation = engine.reserve()
    reservation.submit(fake_request(prompt, num_tokens, **options), recorder)
    recorder.wait()
    reservation.release()
    return recorder


def test_one_request(engine: HostEngine) -> None:
    prompt = range(250)
    recorder = run(engine, prompt, 20)
    assert recorder.tokens == expected_output(prompt, 20)
    assert recorder.finished.reason is FinishReason.OUTPUT_LIMIT
    usage = recorder.finished.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (250, 0, 20)
    kinds = [type(event) for event in recorder.events[:5]]
    assert kinds == [Admitted, PrefillProgress, PrefillProgress, PrefillProgress, PrefillProgress]
    assert [event.processed for event in recorder.progress] == [0, 100, 200, 250]
    assert isinstance(recorder.events[5], Output)


def test_prefix_is_reused(engine: HostEngine) -> None:
    prompt = list(range(250))
    run(engine, prompt, 20)
    recorder = run(engine, prompt, 20)
    assert recorder.tokens == expected_output(prompt, 20)
    assert recorder.finished.usage.cached_tokens == 192
    assert recorder.finished.counters["prefix_reuse_path"] == "shared_stable_prefix"
    assert recorder.finished.counters["computed_prefill_tokens"] == 58


def test_many_at_once(engine: HostEngine) -> None:
    prompts = [list(range(start, start + 70 + 10 * start)) for start in range(12)]
    recorders = [Recorder() for _ in prompts]
    reservations = [engine.reserve() for _ in prompts]
    for reservation, prompt, recorder in zip(reservations, prompts, recorders, strict=True):
        reservation.submit(fake_request(prompt, 30), recorder)
    for reservation, prompt, recorder in zip(reservations, prompts, recorders, strict=True):
        assert recorder.wait().tokens == expected_output(prompt, 30)
        reservation.release()
    assert engine.stats()["gauges"]["device_main_pages_occupied"] == 0


def test_stop_and_forced_tokens(engine: HostEngine) -> None:
    session = FakeSession(stop_after=9, forces={4: (7, 8, 9)})
    recorder = run(engine, [1, 2, 3], 100, session=session)
    free = expected_output([1, 2, 3], 4)
    forced = [*free, 7, 8, 9]
    assert recorder.tokens == [*forced, *expected_output([1, 2, 3, *forced], 2)]
    assert recorder.finished.reason is FinishReason.STOP
    assert session.committed == recorder.tokens
    assert session.finished == [FinishReason.STOP]


def test_zero_output_tokens(engine: HostEngine) -> None:
    recorder = run(engine, range(130), 0)
    assert recorder.tokens == []
    assert recorder.finished.reason is FinishReason.OUTPUT_LIMIT
    assert recorder.progress[-1].processed == 130


def test_context_limit(engine: HostEngine) -> None:
    recorder = run(engine, range(1000), 5000)
    assert recorder.finished.reason is FinishReason.CONTEXT_LIMIT
    assert recorder.finished.usage.completion_tokens == 25


def test_refused_at_once(engine: HostEngine) -> None:
    reservation = engine.reserve()
    with pytest.raises(ContextLengthExceededError, match="1025 tokens"):
        reservation.submit(fake_request([1] * 1025, 1), Recorder())
    with pytest.raises(InvalidPromptError):
        reservation.submit(fake_request([], 1), Recorder())
    with pytest.raises(InvalidPromptError):
        reservation.submit(fake_request([5, -1], 1), Recorder())
    recorder = Recorder()
    reservation.submit(fake_request([5], 1), recorder)
    recorder.wait()
    reservation.release()


def test_overload_and_release(engine: HostEngine) -> None:
    reservations = [engine.reserve() for _ in range(4 + CONFIG.max_pending_requests)]
    with pytest.raises(ServerOverloadedError):
        engine.reserve()
    reservations[0].release()
    reservations[0].release()
    engine.reserve().release()
    for reservation in reservations:
        reservation.release()
    assert engine.drain(timeout=60.0)
    with pytest.raises(EngineUnavailableError):
        engine.reserve()


def test_shutdown_ends_what_runs() -> None:
    engine = fake_engine(CONFIG)
    recorder = Recorder()
    engine.reserve().submit(fake_request([1, 2], 900), recorder)
    engine.shutdown()
    recorder.wait()
    assert not engine.health().ok
