"""Ending requests: resources first, then statistics, then the terminal event that wakes the caller.

A terminal event goes out at once, behind everything that the outbox holds."""

import logging
from collections.abc import Sequence

from ninfer_jax.engine.accounting import Detail, Phase
from ninfer_jax.engine.board import Board
from ninfer_jax.engine.request import EngineRequest, RequestState, local_failure
from ninfer_jax.errors import NinferError
from ninfer_jax.types import Failed, Finished

logger = logging.getLogger(__name__)


class Settlement:
    """The last steps of a request's life, at a boundary or when the whole engine stops."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._services = board.services

    def settle_lanes(self) -> None:
        """Free the lane, pages and slot of every row whose outcome is fixed, and tell its consumer."""
        board, services = self._board, self._services
        ended = board.in_state(RequestState.TERMINAL_PENDING)
        for row in ended:
            if row.admitted_at is not None:
                services.executor.release(row.lane)
            services.step("free")
            if row.id in services.cache.tasks:  # an aborted transaction has freed it already
                services.cache.free(row.id)
            board.ledger.release(row.id)
            board.lanes[row.lane] = None
            if board.owner is row:
                board.owner = None
        if ended:
            self.conclude(ended)

    def conclude(self, ended: Sequence[EngineRequest]) -> None:
        """Publish the outcomes of requests that hold nothing any more."""
        board, services = self._board, self._services
        services.outbox.deliver()  # a sink that fails now still decides its request's outcome
        now = services.now()
        events = [_outcome(request, now) for request in ended]
        for event in events:
            if isinstance(event, Finished):
                board.book.finished[event.reason] += 1
            else:
                board.book.counters.requests_failed += 1
        since = services.clock.switch(Phase.ENGINE_MAINTENANCE)
        board.publish()
        services.clock.note(Detail.STATS_PUBLICATION, since)
        for request, event in zip(ended, events, strict=True):
            self._notify(request, event)
        services.outbox.deliver()

    def abandon(self, arrivals: Sequence[EngineRequest], error: NinferError) -> None:
        """The engine stops: what was decided is told, then every live request and ``arrivals`` (not
        accepted yet) fail, and the host's books are closed. The executor is left alone, it may be the one
        that broke; so may the books, and nobody may be left waiting because of that."""
        self._services.outbox.deliver()
        requests = [*self._board.live.values(), *arrivals]
        self._board.book.counters.requests_failed += len(requests)
        try:
            self._close_books()
        except Exception:
            logger.exception("the cache could not be closed in order")
        for request in requests:
            self._notify(request, Failed(error))
        self._services.outbox.deliver()

    def _close_books(self) -> None:
        board, cache = self._board, self._services.cache
        board.waiting.clear()
        board.lanes = [None] * len(board.lanes)
        board.owner = board.transaction = None
        board.ledger.clear()
        for task in list(cache.tasks):
            cache.free(task.task_id)
        board.publish()

    def _notify(self, request: EngineRequest, event: Finished | Failed) -> None:
        """The one terminal event of a request."""
        request.state = RequestState.FINISHED
        self._board.live.pop(request.id, None)
        if isinstance(event, Finished):
            self._services.observer.finished(request.spec, event)
        else:
            self._services.observer.failed(request.spec, event)
        request.on_end()
        request.publish(event)


def _outcome(request: EngineRequest, now: float) -> Finished | Failed:
    if request.error is not None:
        return Failed(request.error)
    assert request.finish is not None
    try:
        summary = request.spec.session.summary()
    except Exception as error:
        return Failed(local_failure(error, "the output session"))
    return Finished(
        request.finish,
        request.usage(summary.reasoning_tokens),
        request.timings(now),
        summary,
        request.counters(now),
    )
