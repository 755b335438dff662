"""When events go out: behind the next submission, before a wait, and at once where nothing follows."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ninfer_jax.cache import TransactionState
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.engine.observer import NullObserver
from ninfer_jax.errors import EngineError
from ninfer_jax.types import (
    Admitted,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Output,
    PrefillProgress,
    Wake,
)
from tests.engine.faults import BrokenExecutor, FaultPlan, InjectedError, Run
from tests.engine.test_transactions import SlowCache
from tests.fakes import (
    FakeExecutor,
    FakePending,
    FakeSession,
    Recorder,
    expected_output,
    fake_engine,
    fake_request,
)

CONFIG = EngineConfig(max_context=512, kv_capacity=1024, max_concurrency=2, prefill_chunk=64)


class Timeline:
    """What the device and the consumers saw, in one order; ``name`` before an event says whose."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def sink(self, name: str) -> Callable[[Event], None]:
        def put(event: Event) -> None:
            match event:
                case PrefillProgress(processed):
                    self.steps.append(f"{name} progress {processed}")
                case Output(token_ids, _, count):
                    self.steps.append(f"{name} output {count}" if token_ids else f"{name} flush")
                case _:
                    self.steps.append(f"{name} {type(event).__name__.lower()}")

        return put


class LoggingExecutor(FakeExecutor):
    def __init__(self, timeline: Timeline) -> None:
        super().__init__(2, 16)
        self._steps = timeline.steps
        self.during_wait = lambda: self._steps.append("wait")

    def prefill(self, lane: int, token_ids: Sequence[int], start: int, **options: Any) -> FakePending:
        self._steps.append("control" if options.get("is_output") else "prefill")
        return super().prefill(lane, token_ids, start, **options)

    def decode(self, lanes: Sequence[int], token_ids: Sequence[int], frontiers: Sequence[int]) -> FakePending:
        self._steps.append("decode")
        return super().decode(lanes, token_ids, frontiers)

    def release(self, lane: int) -> None:
        self._steps.append("release")
        super().release(lane)


class CountingObserver(NullObserver):
    """``told_at_the_end`` is how many tokens it had heard of when the request failed."""

    def __init__(self) -> None:
        self._num_tokens = 0
        self.told_at_the_end = -1

    def output(self, request: GenerationRequest, num_tokens: int, completion_tokens: int, at: float) -> None:
        self._num_tokens += num_tokens
        assert completion_tokens == self._num_tokens

    def failed(self, request: GenerationRequest, event: Failed) -> None:
        self.told_at_the_end = self._num_tokens


def logged_engine(**options: Any) -> tuple[HostEngine, Timeline]:
    timeline = Timeline()
    executor = LoggingExecutor(timeline)
    return fake_engine(CONFIG, start=False, executor=executor, **options), timeline


def step_until_idle(engine: HostEngine) -> None:
    for _ in range(1000):
        if not engine.thread.step() and engine.scheduler.board.is_idle:
            return
    raise AssertionError("it never ends")


def test_a_round_is_told_while_the_next_one_runs() -> None:
    engine, timeline = logged_engine()
    engine.reserve().submit(fake_request(range(100), 4, session=FakeSession()), timeline.sink("a"))
    step_until_idle(engine)
    assert timeline.steps == [
        *("prefill", "a admitted", "a progress 0", "wait"),
        *("prefill", "a progress 64", "wait"),
        *("a progress 100", "a output 1"),  # the first token does not wait for anything
        *("decode", "wait"),
        *("decode", "a output 2", "wait"),
        *("decode", "a output 3", "wait"),
        *("release", "a output 4", "a finished"),
    ]
    engine.shutdown()


def test_a_long_prefill_and_forced_tokens_hold_nothing_back() -> None:
    engine, timeline = logged_engine()
    session = FakeSession(forces={3: (1, 2)})
    engine.reserve().submit(fake_request([1, 2], 8, session=session), timeline.sink("a"))
    for _ in range(2):
        engine.thread.step()
    engine.reserve().submit(fake_request(range(100), 1), timeline.sink("b"))
    start = len(timeline.steps)
    for _ in range(4):
        engine.thread.step()
    assert timeline.steps[start:] == [
        *("prefill", "a output 2", "b admitted", "b progress 0", "wait"),
        *("decode", "b progress 64", "wait"),
        *("control", "a output 3", "wait"),
        *("decode", "a output 5", "wait"),
    ]
    engine.shutdown()


def test_an_outcome_is_told_before_the_next_unit() -> None:
    engine, timeline = logged_engine()
    for name, num_tokens in (("a", 2), ("b", 90)):
        engine.reserve().submit(fake_request([1, 2], num_tokens), timeline.sink(name))
    while "a finished" not in timeline.steps:
        engine.thread.step()
    start = timeline.steps.index("a output 2")
    assert timeline.steps[start - 1 : start + 3] == ["release", "a output 2", "a finished", "prefill"]
    engine.shutdown()


def test_a_cancelled_request_is_told_what_was_decided() -> None:
    engine, timeline = logged_engine()
    reservation = engine.reserve()
    reservation.submit(fake_request([1, 2], 90), timeline.sink("a"))
    for _ in range(2):
        engine.thread.step()
    reservation.cancel()
    start = len(timeline.steps)
    step_until_idle(engine)
    assert timeline.steps[start:] == ["a output 2", "release", "a finished"]
    engine.shutdown()


def test_nothing_is_held_where_no_unit_follows() -> None:
    """A request that is cancelled while its resources are moved is admitted and never runs."""
    engine = fake_engine(CONFIG, start=False, cache=SlowCache(2, TransactionState.COMMITTED, num_fast=0))
    recorder, reservation = Recorder(), engine.reserve()
    reservation.submit(fake_request([1, 2], 9), recorder)
    engine.thread.step()
    assert recorder.events == []
    reservation.cancel()
    step_until_idle(engine)
    assert [type(event) for event in recorder.events] == [Admitted, PrefillProgress, Finished]
    assert recorder.finished.reason is FinishReason.CANCELLED
    engine.shutdown()


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("where", ["decode", "deliver", "wait", "commit"])
def test_a_failure_is_told_behind_what_was_decided(where: str, number: int) -> None:
    """At the ``number``-th submission of a round, or at that step of a later unit."""
    is_executor = where in ("decode", "wait")
    options: dict[str, Any] = (
        {"executor": BrokenExecutor(where, number)} if is_executor else {"fault": FaultPlan(where, number)}
    )
    observer = CountingObserver()
    run = Run(observer=observer, **options)
    recorder = run.submit([1, 2, 3], 50)
    run.engine.start()
    recorder.wait()
    run.close()
    num_decided = number if where == "decode" else number - 1
    assert recorder.tokens == expected_output([1, 2, 3], num_decided)
    assert isinstance(recorder.failed.error, EngineError)
    assert recorder.failed.error.message == "the engine has failed"
    assert observer.told_at_the_end == num_decided


@pytest.mark.parametrize("at", [1, 2, 4, 6, 30])
def test_a_sink_that_fails_while_the_device_computes_ends_its_request_alone(at: int) -> None:
    def sink(event: Event) -> None:
        if isinstance(event, Output) and event.completion_tokens == at:
            raise InjectedError("sink")

    run = Run()
    session = FakeSession(forces={4: (7, 8)})
    broken = run.submit(range(100), 30, session=session, sink=sink)
    other = run.submit(range(20), 30)
    run.engine.start()
    assert broken.wait().failed.error.message == "the event sink failed"
    assert other.wait().tokens == expected_output(range(20), 30)
    assert session.committed == broken.tokens
    assert len(broken.tokens) == at
    run.close()


def test_a_consumer_that_cancels_in_its_sink_gets_no_further_token() -> None:
    engine = fake_engine(CONFIG, start=False)
    recorder, reservation = Recorder(), engine.reserve()

    def sink(event: Event) -> None:
        recorder(event)
        if isinstance(event, Output) and event.completion_tokens == 3:
            reservation.cancel()

    reservation.submit(fake_request([1, 2], 90), sink)
    step_until_idle(engine)
    assert recorder.tokens == expected_output([1, 2], 3)
    assert recorder.finished.reason is FinishReason.CANCELLED
    units: Any = engine.scheduler.services.executor
    assert [kind for kind, _ in units.units] == ["prefill"] + 3 * ["decode"]
    engine.shutdown()


def test_a_consumer_that_has_let_go_is_told_nothing() -> None:
    engine = fake_engine(CONFIG, start=False)
    recorder, reservation = Recorder(), engine.reserve()
    reservation.submit(fake_request([1, 2], 90), recorder)
    for _ in range(2):
        engine.thread.step()
    assert len(engine.scheduler.services.outbox) == 1
    reservation.release()
    step_until_idle(engine)
    assert recorder.tokens == expected_output([1, 2], 1)
    assert recorder.terminal is None
    engine.shutdown()


def test_a_wake_up_is_called_once_for_all_that_return_it() -> None:
    engine = fake_engine(CONFIG, start=False)
    calls: list[str] = []

    def wake() -> None:
        calls.append("wake")

    def broken_wake() -> None:
        calls.append("broken")
        raise InjectedError("wake")

    def put(event: Event, returned: Wake) -> Wake:
        calls.append(type(event).__name__)
        return returned

    engine.reserve().submit(fake_request([1, 2], 4), lambda event: put(event, broken_wake))
    engine.reserve().submit(fake_request([3, 4], 40), lambda event: put(event, wake))
    for _ in range(4):
        engine.thread.step()
    calls.clear()
    engine.thread.step()
    assert calls == ["Output", "Output", "broken", "wake"]
    step_until_idle(engine)
    assert engine.thread.failure is None
    assert calls[-2:] == ["Finished", "wake"]
    engine.shutdown()
