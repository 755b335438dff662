"""What breaks at a chosen step, and a run of three requests whose accounts are settled at its end."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.errors import EngineError, EngineUnavailableError
from ninfer_jax.types import Event, Failed, FinishReason, Preview
from tests.fakes import FakeExecutor, FakeSession, Recorder, expected_output, fake_engine, fake_request

CONFIG = EngineConfig(max_context=256, kv_capacity=512, max_concurrency=2, prefill_chunk=64)


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
        self.reservations: list[Any] = []

    def submit(
        self,
        prompt: Sequence[int],
        num_tokens: int,
        session: FakeSession | None = None,
        sink: Callable[[Event], None] | None = None,
    ) -> Recorder:
        recorder = Recorder()
        reservation = self.engine.reserve()

        def both(event: Event) -> None:
            recorder(event)
            if sink is not None:
                sink(event)

        reservation.submit(fake_request(prompt, num_tokens, session=session), both)
        self.recorders.append(recorder)
        self.reservations.append(reservation)
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
        """Nothing leaks: pages, lanes, reservations, tracked requests, the thread."""
        for reservation in self.reservations:
            reservation.release()
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


class LyingSession(FakeSession):
    def __init__(self, preview: Preview) -> None:
        super().__init__()
        self._preview = preview

    def preview(self, token_ids: Sequence[int]) -> Preview:
        return self._preview
