"""The boundary: everything the engine thread does between two units, in one fixed order.

    expire and cancel waiting -> progress the open transaction -> settle ended rows -> freeze the
    cancellation snapshot -> at most one admission -> choose and run one unit -> publish statistics

Nothing else stands between two units: what one of them decided is told to consumers when the next has been
submitted (``outbox.py``). Arrivals and cancellations during a boundary are seen at the next one. Decode and
prefill alternate when both can run; one request prefills at a time; a decode round takes every decode-ready
row.
"""

from collections.abc import Iterable, Sequence

from ninfer_jax.engine.accounting import Phase, WorkClass
from ninfer_jax.engine.board import Board, Services
from ninfer_jax.engine.entrance import Entrance
from ninfer_jax.engine.request import EngineRequest, RequestState
from ninfer_jax.engine.settlement import Settlement
from ninfer_jax.engine.units import UnitRunner
from ninfer_jax.types import FinishReason


class Scheduler:
    """Decides the order of work. Single-threaded; ``boundary`` is its only verb."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.board = Board.empty(services)
        self.settlement = Settlement(self.board)
        self._entrance = Entrance(self.board, self.settlement)
        self._units = UnitRunner(services, self.board.book.counters)
        self._last_work = WorkClass.DECODE
        self._last_side = WorkClass.PREFILL

    def boundary(self, arrivals: Iterable[EngineRequest]) -> bool:
        """One pass; whether a unit ran. Raises only when the engine as a whole has failed.

        ``arrivals`` are in ``board.live`` already, so that whatever happens here, they are ended once.
        """
        clock, step = self.services.clock, self.services.step
        clock.switch(Phase.ENGINE_BOUNDARY)
        self._entrance.accept(arrivals)
        step("expire")
        self._entrance.expire_waiting()
        step("transaction")
        self._entrance.progress_transaction()
        clock.switch(Phase.ENGINE_MAINTENANCE)
        step("settle")
        self.settlement.settle_lanes()
        clock.switch(Phase.ENGINE_BOUNDARY)
        step("freeze")
        self._freeze_cancellations(besides=())
        step("admit")
        if self._is_admission_turn():
            self._entrance.admit_one()
        step("choose")
        rows, work = self._run_unit()
        self._freeze_cancellations(besides=rows)
        clock.switch(Phase.ENGINE_MAINTENANCE)
        vector = clock.stop(work)
        for row in rows:
            row.exposure.add(vector, work)
        step("stats")
        self.board.publish()
        return bool(rows)

    def _freeze_cancellations(self, besides: Sequence[EngineRequest]) -> None:
        """Before a unit: rows cancelled by now take no part in it. After it: rows that took no part
        and were cancelled meanwhile end now; those that did were frozen when its result arrived."""
        for row in self.board.active():
            if row.cancel_requested and row.state is not RequestState.MATERIALIZING and row not in besides:
                row.flush_and_end(FinishReason.CANCELLED, self.services.now())

    def _is_admission_turn(self) -> bool:
        """No prefill owner, and a decode round came after the last admission if rows are ready."""
        if self.board.owner is not None:
            return False
        return self._last_work is WorkClass.DECODE or not self.board.in_state(RequestState.DECODE_READY)

    def _run_unit(self) -> tuple[Sequence[EngineRequest], WorkClass]:
        """Choose one unit and run it; returns who took part. Nobody means that no unit ran."""
        ready = self.board.in_state(RequestState.DECODE_READY)
        other = self._choose_other()
        if other is not None and (not ready or self._last_work is WorkClass.DECODE):
            if other.state is RequestState.CONTROL_READY:
                self._units.control(other)
                self._last_side = WorkClass.CONTROL
            else:
                self._units.prefill(other)
                self._last_side = WorkClass.PREFILL
                if other.state is not RequestState.PREFILL:
                    self.board.owner = None
            self._last_work = self._last_side
            return (other,), self._last_work
        if ready:
            self._units.decode(ready)
            self._last_work = WorkClass.DECODE
            return ready, self._last_work
        self.services.outbox.deliver()  # no device work is coming that could hide it
        return (), WorkClass.CONTROL

    def _choose_other(self) -> EngineRequest | None:
        """A forced append or the prefill owner; the two take turns where both wait."""
        control = self.board.in_state(RequestState.CONTROL_READY)
        owner = self.board.owner
        prefill = owner if owner is not None and owner.state is RequestState.PREFILL else None
        if control and (prefill is None or self._last_side is WorkClass.PREFILL):
            return min(control, key=lambda row: row.id)
        return prefill
