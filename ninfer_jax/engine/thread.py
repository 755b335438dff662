"""The engine thread: the only caller of the scheduler, the cache and the executor."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from ninfer_jax.engine.request import EngineRequest
from ninfer_jax.engine.scheduler import Scheduler
from ninfer_jax.errors import EngineError, EngineUnavailableError, NinferError

logger = logging.getLogger(__name__)


IN_FLIGHT_POLL = 0.001
"""Seconds between two looks at an open resource transaction while nothing else can run."""


class EngineThread:
    """Feeds arrivals to the scheduler, sleeps when there is nothing to do, and ends every request when
    the engine fails or stops. ``step`` is one turn without waiting, for tests without a thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        on_failure: Callable[[BaseException], None] | None = None,
        *,
        check_when_idle: bool = False,
    ) -> None:
        self._scheduler = scheduler
        self._on_failure = on_failure
        self._check_when_idle = check_when_idle
        self._changed = threading.Condition()
        self._inbox: deque[EngineRequest] = deque()
        self._is_woken = False
        self._closing: NinferError | None = None
        self._thread = threading.Thread(target=self._run, name="ninfer-engine", daemon=True)
        self.failure: BaseException | None = None

    # -- any thread -----------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_closed(self) -> bool:
        """Whether the engine has failed or is stopping."""
        return self._closing is not None

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive() and self._closing is None

    def post(self, request: EngineRequest) -> None:
        """Queue a request. Raises EngineUnavailableError when nobody will look at it any more."""
        with self._changed:
            if self._closing is not None:
                raise EngineUnavailableError("the engine has stopped")
            self._inbox.append(request)
            self._is_woken = True
            self._changed.notify()

    def wake(self) -> None:
        """A flag of some request has changed."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def stop(self) -> None:
        """End all requests that still run and the thread; returns when both are done."""
        with self._changed:
            if self._closing is None:
                self._closing = EngineUnavailableError("the engine is shutting down")
            self._is_woken = True
            self._changed.notify()
        if self._thread is threading.current_thread():
            return
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._end_all()  # the thread was never started, or has ended by itself

    # -- the engine thread ----------------------------------------------------------------------------

    def step(self) -> bool:
        """One boundary over what has arrived; whether a unit ran. Failure ends the engine."""
        live = self._scheduler.board.live
        arrivals: list[EngineRequest] = []
        try:
            while self._inbox:
                request = self._inbox.popleft()
                live[request.id] = request
                arrivals.append(request)
            return self._scheduler.boundary(arrivals)
        except BaseException as error:
            # Whatever it was: a dead thread would leave every caller waiting.
            self._fail(error)
            return False

    def _run(self) -> None:
        board, clock = self._scheduler.board, self._scheduler.services.clock
        clock.resume()
        while self._closing is None:
            if self.step() or self._closing is not None:
                continue
            if board.is_idle:
                self._sleep(None)
                clock.resume()
            elif board.transaction is not None:
                self._sleep(IN_FLIGHT_POLL)
                clock.resume()
        self._end_all()

    def _sleep(self, timeout: float | None) -> None:
        """Until something arrives, is cancelled or stops the engine."""
        if timeout is None and self._check_when_idle:
            try:
                self._scheduler.services.cache.check()
            except AssertionError as error:
                self._fail(error)
                return
        with self._changed:
            self._changed.wait_for(lambda: self._is_woken, timeout)
            self._is_woken = False

    def _fail(self, error: BaseException) -> None:
        logger.error("the engine has failed", exc_info=error)
        with self._changed:
            self.failure = error
            self._closing = EngineError("the engine has failed")
        self._end_all()
        if self._on_failure is not None:
            try:
                self._on_failure(error)
            except Exception:
                logger.exception("the failure callback raised")

    def _end_all(self) -> None:
        with self._changed:
            assert self._closing is not None
            error = self._closing
            arrivals = list(self._inbox)
            self._inbox.clear()
        self._scheduler.settlement.abandon(arrivals, error)
