"""From arrival to a bound lane: the queue, its deadlines, the admission turn, the resource transaction."""

from collections.abc import Iterable

from ninfer_jax.cache import ResourceTransaction, TransactionState
from ninfer_jax.engine.accounting import Detail, Phase
from ninfer_jax.engine.admission import Incumbent
from ninfer_jax.engine.board import Board
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.request import EngineRequest, RequestState
from ninfer_jax.engine.settlement import Settlement
from ninfer_jax.errors import EngineError, QueueTimeoutError
from ninfer_jax.types import Admitted, FinishReason, PrefillProgress


class Entrance:
    """Applies the admission rules of ``admission.py`` to requests."""

    def __init__(self, board: Board, settlement: Settlement) -> None:
        self._board = board
        self._services = board.services
        self._settlement = settlement
        self._num_arrivals = 0
        self._blocked_at: tuple[int, int] | None = None

    def accept(self, arrivals: Iterable[EngineRequest]) -> None:
        """Append to the queue in the order of submission."""
        for request in arrivals:
            self._num_arrivals += 1
            self._board.waiting.append(request)
            self._board.book.counters.requests_submitted += 1
            self._services.observer.submitted(request.spec, request.submitted_at)

    def expire_waiting(self) -> None:
        """Drop waiting requests that were cancelled or have passed their deadline."""
        board = self._board
        if not board.waiting:
            return
        now = self._services.now()
        gone = [r for r in board.waiting if r.cancel_requested or r.deadline <= now]
        for request in gone:
            board.waiting.remove(request)
            board.ledger.withdraw(request.id)
            if request.cancel_requested:
                request.flush_and_end(FinishReason.CANCELLED, now)
            else:
                board.book.counters.queue_timeouts += 1
                request.fail(QueueTimeoutError("the request was not admitted before its deadline"))
        if gone:
            self._settlement.conclude(gone)

    def admit_one(self) -> None:
        """One admission turn; the caller has checked that it is due."""
        board = self._board
        state = (board.ledger.revision, self._num_arrivals)
        if not board.waiting or state == self._blocked_at:
            return  # nothing was released and nothing arrived since the last look
        since = self._services.clock.switch(Phase.ENGINE_BOUNDARY)
        chosen = self._choose()
        if chosen is None:
            self._blocked_at = state
        else:
            self._begin(chosen)
        self._services.clock.note(Detail.ADMISSION, since)

    def _choose(self) -> EngineRequest | None:
        """The head if it fits, else the first request behind it that may borrow."""
        board = self._board
        head = board.waiting[0]
        if board.ledger.fits(head.entitlement):
            return head
        chunk = self._services.prefill_chunk
        incumbents = [Incumbent(r.id, r.entitlement, r.remaining_work(chunk)) for r in board.active()]
        board.ledger.protect(head.id, head.entitlement, incumbents)
        behind = (request for request in board.waiting if request is not head)
        return next((request for request in behind if board.ledger.may_borrow(request.entitlement)), None)

    def _begin(self, request: EngineRequest) -> None:
        """Take lane, pages and slot together; reuse without copies is complete at once."""
        board, cache = self._board, self._services.cache
        prompt = request.spec.prompt
        candidate = cache.candidates(prompt)[0]
        self._services.step("begin")
        board.waiting.remove(request)
        board.ledger.admit(request.id, request.entitlement)
        request.lane = board.lanes.index(None)
        request.state = RequestState.MATERIALIZING
        board.lanes[request.lane] = board.owner = request
        board.transaction = cache.begin(
            request.id, request.lane, prompt, request.entitlement.main_pages, candidate
        )
        self.progress_transaction()

    def progress_transaction(self) -> None:
        """Move the open resource transaction on, without waiting for it."""
        transaction, request = self._board.transaction, self._board.owner
        if transaction is None:
            return
        assert request is not None
        state = transaction.progress()
        if state is TransactionState.COMMITTED:
            self._commit(request, transaction)
        elif state is TransactionState.ABORTED:
            request.fail(EngineError("the request's resources could not be moved"))
        elif request.cancel_requested:
            transaction.abort()
            request.flush_and_end(FinishReason.CANCELLED, self._services.now())
        else:
            return
        self._board.transaction = None

    def _commit(self, request: EngineRequest, transaction: ResourceTransaction) -> None:
        """The reuse choice is final: bind the lane and say so."""
        services, book = self._services, self._board.book
        prompt, candidate = request.spec.prompt, transaction.candidate
        base = candidate.num_tokens
        services.step("bind")
        view = services.cache.view(request.id)
        services.executor.bind(
            request.lane,
            LaneBinding(
                pages=view.pages,
                slot=view.slot,
                sampling=request.spec.sampling,
                prompt_len=request.prompt_len,
                start=base,
                rope_delta=rope_delta(prompt.positions),
                image=candidate.image,
                tail_page=candidate.tail_page,
            ),
        )
        now = services.now()
        request.path = candidate.path
        request.cached_tokens = request.frontier = base
        request.splits = services.cache.capture_frontiers(prompt, base)
        request.admitted_at = now
        request.state = RequestState.PREFILL
        book.counters.requests_admitted += 1
        book.counters.prompt_tokens += request.prompt_len
        book.counters.reused_prompt_tokens += base
        book.selections[candidate.path] += 1
        book.gauges.last_selected_frontier_tokens = base
        admitted = Admitted(request.prompt_len, base, now)
        services.observer.admitted(request.spec, admitted, now - request.submitted_at)
        request.publish(admitted)
        request.publish(PrefillProgress(base, request.prompt_len, now))


def rope_delta(positions: tuple[tuple[int, ...], ...] | None) -> int:
    """What is added to a cache ordinal past the prompt to get its rope position."""
    if positions is None:
        return 0
    return max(max(axis) for axis in positions) + 1 - len(positions[0])
