"""An exception at every step: one request fails or the engine is declared failed, and nothing leaks.

Every test runs the real thread, ends with the same accounts, and would hang if anybody were forgotten.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.engine.observer import NullObserver
from ninfer_jax.errors import EngineError, EngineUnavailableError, InvalidPromptError, NinferError
from ninfer_jax.types import (
    Admitted,
    Event,
    Failed,
    Finished,
    FinishReason,
    Output,
    PrefillProgress,
    Preview,
)
from tests.fakes import FakeExecutor, FakeSession, Recorder, expected_output, fake_engine, fake_request

CONFIG = EngineConfig(max_context=256, kv_capacity=512, max_concurrency=2, prefill_chunk=64)
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
    "wait",
    "post",
    "commit",
    "stats",
)


class InjectedError(RuntimeError):
    pass


class FaultPlan:
    """Raises at the ``number``-th passage of ``step``."""

    def __init__(self, step: str, number: int) -> None:
        self.step = step
        self.left = number

    def __call__(self, step: str) -> None:
        if step == self.step:
            self.left -= 1
            if self.left == 0:
                raise InjectedError(step)


class Run:
    """Three requests on two lanes, one of them with forced tokens, and what became of them."""

    def __init__(self, **options: Any) -> None:
        self.failures: list[BaseException] = []
        self.engine = fake_engine(CONFIG, start=False, on_failure=self.failures.append, **options)
        self.recorders: list[Recorder] = []
        self.places: list[Any] = []

    def submit(
        self,
        prompt: Sequence[int],
        num_tokens: int,
        session: FakeSession | None = None,
        sink: Callable[[Event], None] | None = None,
    ) -> Recorder:
        recorder = Recorder()
        place = self.engine.reserve()

        def both(event: Event) -> None:
            recorder(event)
            if sink is not None:
                sink(event)

        place.submit(fake_request(prompt, num_tokens, session=session), both)
        self.recorders.append(recorder)
        self.places.append(place)
        return recorder

    def three(self, **first: Any) -> list[Recorder]:
        self.submit(range(100), 8, **first)
        self.submit(range(50, 120), 9, session=FakeSession(forces={3: (1, 2)}))
        self.submit(range(130), 7)
        self.engine.start()
        for recorder in self.recorders:
            recorder.wait()
        return self.recorders

    def close(self) -> None:
        """Nothing leaks: pages, lanes, places, tracked requests, the thread."""
        for place in self.places:
            place.release()
        assert self.engine.drain(timeout=60.0)
        engine_failed = self.engine.thread.failure is not None
        was_shut_down = self.engine.thread.is_closed
        self.engine.shutdown()
        assert not self.engine.thread.is_alive
        board, services = self.engine.scheduler.board, self.engine.scheduler.services
        services.cache.check()
        assert services.cache.counts().held == services.cache.counts().reserved == 0
        assert not board.live
        assert not board.waiting
        assert board.active() == []
        assert not any(board.ledger.used)
        if not was_shut_down:
            assert not services.executor.lanes  # type: ignore[attr-defined]
        assert all(recorder.late == [] for recorder in self.recorders)
        assert len(self.failures) == engine_failed


def check_engine_failed(run: Run) -> None:
    """All ended once, and everybody who asks is told."""
    assert run.engine.thread.failure is not None
    health = run.engine.health()
    assert (health.ok, health.model_loaded) == (False, True)
    with pytest.raises(EngineUnavailableError):
        run.engine.reserve()
    failed = [recorder.terminal for recorder in run.recorders if isinstance(recorder.terminal, Failed)]
    assert failed
    assert all(isinstance(event.error, EngineError) for event in failed)


def check_next_request_works(run: Run) -> None:
    assert run.engine.thread.failure is None
    assert run.engine.health().ok
    recorder = run.submit(range(90), 5).wait()
    assert recorder.tokens == expected_output(range(90), 5)


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


class BrokenExecutor(FakeExecutor):
    """Raises at the ``number``-th call of one method; ``wait`` is the result's."""

    def __init__(self, method: str, number: int) -> None:
        super().__init__(CONFIG.max_concurrency, 8)
        self._plan = FaultPlan(method, number)
        self.during_wait = lambda: self._plan("wait")

    def __getattribute__(self, name: str) -> Any:
        if name in ("bind", "release", "prefill", "decode"):
            self._plan(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("method", ["bind", "release", "prefill", "decode", "wait"])
def test_74_a_device_error_fails_everybody_once(method: str, number: int) -> None:
    run = Run(executor=BrokenExecutor(method, number))
    run.three()
    check_engine_failed(run)
    run.close()


class BrokenSession(FakeSession):
    def __init__(self, method: str, error: Exception) -> None:
        super().__init__()
        self._method = method
        self._error = error

    def _maybe(self, method: str) -> None:
        if method == self._method and len(self.committed) in (0, 3, 8):
            raise self._error

    def preview(self, token_ids: Sequence[int]) -> Preview:
        self._maybe("preview")
        return super().preview(token_ids)

    def commit(self, token_ids: Sequence[int]) -> Any:
        self._maybe("commit")
        return super().commit(token_ids)

    def finish(self, reason: FinishReason) -> Any:
        self._maybe("finish")
        return super().finish(reason)

    def summary(self) -> Any:
        self._maybe("summary")
        return super().summary()


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


class LyingSession(FakeSession):
    def __init__(self, preview: Preview) -> None:
        super().__init__()
        self._preview = preview

    def preview(self, token_ids: Sequence[int]) -> Preview:
        return self._preview


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
    place = engine.reserve()
    place.submit(fake_request([1], 1), recorder)
    assert isinstance(recorder.wait().failed.error, EngineError)
    place.release()
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
