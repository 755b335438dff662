"""An exception at every step: one request fails or the engine is declared failed, and nothing leaks.

Every test runs the real thread, ends with the same accounts, and would hang if anybody were forgotten.
"""

from typing import Any

import pytest

from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.engine.observer import NullObserver
from ninfer_jax.errors import EngineError, EngineUnavailableError, InvalidPromptError, NinferError
from ninfer_jax.types import Admitted, Event, Failed, Finished, FinishReason, Output, PrefillProgress, Preview
from tests.engine.faults import (
    CONFIG,
    BrokenExecutor,
    BrokenSession,
    FaultPlan,
    InjectedError,
    LyingSession,
    Run,
    check_engine_failed,
    check_next_request_works,
)
from tests.fakes import Recorder, expected_output, fake_engine, fake_request

REQUEST_STEPS = ("preview", "session_commit")
ENGINE_STEPS = (
    "expire",
    "transaction",
    "settle",
    "free",
    "freeze",
    "admit",
    "begin",
    "bind",
    "choose",
    "submit",
    "deliver",
    "wait",
    "post",
    "commit",
    "stats",
)


@pytest.mark.parametrize("number", [1, 2, 7])
@pytest.mark.parametrize("step", ENGINE_STEPS)
def test_74_a_broken_boundary_fails_everybody_once(step: str, number: int) -> None:
    number = min(number, 3 if step in ("free", "begin", "bind") else number)
    run = Run(fault=FaultPlan(step, number))
    run.three()
    check_engine_failed(run)
    run.close()


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("step", REQUEST_STEPS)
def test_a_broken_session_fails_one_request(step: str, number: int) -> None:
    run = Run(fault=FaultPlan(step, number))
    recorders = run.three()
    assert sum(isinstance(recorder.terminal, Failed) for recorder in recorders) == 1
    check_next_request_works(run)
    run.close()


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("method", ["bind", "release", "prefill", "decode", "wait"])
def test_74_a_device_error_fails_everybody_once(method: str, number: int) -> None:
    run = Run(executor=BrokenExecutor(method, number))
    run.three()
    check_engine_failed(run)
    run.close()


@pytest.mark.parametrize("method", ["preview", "commit", "finish", "summary"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [(InjectedError("x"), EngineError), (InvalidPromptError("y"), InvalidPromptError)],
)
def test_a_session_that_raises_fails_its_own_request(
    method: str, error: Exception, expected: type[NinferError]
) -> None:
    run = Run()
    first, second, third = run.three(session=BrokenSession(method, error))
    assert type(first.failed.error) is expected
    assert second.finished.reason is third.finished.reason is FinishReason.OUTPUT_LIMIT
    check_next_request_works(run)
    run.close()


@pytest.mark.parametrize("preview", [Preview(0), Preview(2), Preview(0, FinishReason.STOP), Preview(-1)])
def test_a_session_that_breaks_its_contract_fails_its_own_request(preview: Preview) -> None:
    run = Run()
    first, _, third = run.three(session=LyingSession(preview))
    assert "the output session accepted" in first.failed.error.message
    assert third.tokens == expected_output(range(130), 7)
    check_next_request_works(run)
    run.close()


@pytest.mark.parametrize("kind", [Admitted, PrefillProgress, Output, Finished])
def test_a_sink_that_raises_fails_its_own_request(kind: type) -> None:
    def sink(event: Event) -> None:
        if isinstance(event, kind):
            raise InjectedError("sink")

    run = Run()
    run.submit(range(50, 120), 9)
    broken = run.submit(range(100), 8, sink=sink)
    last = run.submit(range(130), 7)
    run.engine.start()
    assert run.recorders[0].wait().tokens == expected_output(range(50, 120), 9)
    assert last.wait().tokens == expected_output(range(130), 7)
    broken.wait()
    if kind is not Finished:
        assert broken.failed.error.message == "the event sink failed"
        assert isinstance(broken.events[-2], kind), "only the terminal event is tried after that"
    check_next_request_works(run)
    run.close()


def test_an_observer_that_raises_is_heard_of_and_kept() -> None:
    class Observer(NullObserver):
        def __init__(self) -> None:
            self.finishes = 0

        def output(self, *arguments: Any) -> None:
            raise InjectedError("observer")

        def finished(self, *arguments: Any) -> None:
            self.finishes += 1

    observer = Observer()
    run = Run(observer=observer)
    assert all(isinstance(recorder.terminal, Finished) for recorder in run.three())
    check_next_request_works(run)
    assert observer.finishes > 3
    stats = run.engine.stats()
    assert stats["observer_failures"] >= observer.finishes
    run.close()


def test_a_failure_callback_that_raises_changes_nothing() -> None:
    def on_failure(error: BaseException) -> None:
        raise InjectedError("callback")

    engine = fake_engine(CONFIG, on_failure=on_failure, fault=FaultPlan("bind", 1))
    recorder = Recorder()
    reservation = engine.reserve()
    reservation.submit(fake_request([1], 1), recorder)
    assert isinstance(recorder.wait().failed.error, EngineError)
    reservation.release()
    engine.shutdown()
    assert not engine.thread.is_alive


def test_shutdown_while_everything_runs() -> None:
    run = Run()
    for _ in range(4):
        run.submit(range(60), 190)
    run.engine.start()
    run.engine.shutdown()
    for recorder in run.recorders:
        terminal = recorder.wait().terminal
        assert isinstance(terminal, Finished) or isinstance(terminal.error, EngineUnavailableError)
    run.close()


def test_shutdown_from_the_failure_callback_does_not_deadlock() -> None:
    engines: list[HostEngine] = []
    engine = fake_engine(
        CONFIG, start=False, on_failure=lambda error: engines[0].shutdown(), fault=FaultPlan("submit", 1)
    )
    engines.append(engine)
    engine.start()
    recorder = Recorder()
    engine.reserve().submit(fake_request([1], 1), recorder)
    recorder.wait()
    engine.shutdown()
    assert not engine.thread.is_alive
