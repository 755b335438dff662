"""A whole engine run without a thread: random arrivals, cancels and deadlines, one boundary at a time.

``simulate`` plays a scenario to its end and returns everything that the invariants talk about. Broken
page accounting and writes to shared pages stop it at once, inside the cache and the fake device.
"""

from dataclasses import dataclass, field
from typing import Any

from ninfer_jax.engine.admission import Entitlement
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.engine.request import RequestState
from ninfer_jax.errors import NinferError, QueueTimeoutError, ServerOverloadedError
from ninfer_jax.types import Event, Failed, Finished
from tests.engine.scenarios import Arrival, Scenario
from tests.fakes import FakeLane, FakeSession, Recorder, fake_engine, fake_request

MAX_STEPS = 5000


@dataclass
class Client:
    """One request's outside: what was asked, what was answered."""

    index: int
    arrival: Arrival
    prompt: list[int]
    session: FakeSession
    reserved_at: float
    recorder: Recorder = field(default_factory=Recorder)
    refused: NinferError | None = None
    id: int | None = None
    admitted_at: float | None = None
    ended_at: float | None = None
    cancelled_at: float | None = None
    tokens_at_cancel: int = 0
    stats_at_end: dict[str, Any] | None = None
    reserved_pages_at_end: int = -1
    lane_at_release: FakeLane | None = None


@dataclass
class Unit:
    """What ran, and what could have run at that moment."""

    step: int
    kind: str
    lanes: tuple[int, ...]
    ready: tuple[int, ...]
    """Lanes that were decode-ready."""
    others: tuple[str, ...]
    """Kinds of runnable units that are not decode rounds."""


@dataclass
class Admission:
    """What stood at the moment when a request's entitlement was taken."""

    step: int
    client: int
    ready: int
    """Decode-ready rows."""
    had_owner: bool
    overtaken: tuple[int, ...]
    """Clients that had been waiting for longer, oldest first."""
    head_fitted: bool
    is_protected: bool
    """Whether the oldest of them had its protection epoch."""
    skipped_borrower: bool
    """Whether another of them could have been the borrower."""
    num_units: int
    """Units that had run."""


@dataclass
class Trace:
    scenario: Scenario
    engine: HostEngine
    clients: list[Client] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    admissions: list[Admission] = field(default_factory=list)
    overloads: list[tuple[int, int]] = field(default_factory=list)
    """(outstanding, capacity) at each refused reservation."""
    max_outstanding: int = 0
    steps: int = 0

    @property
    def stats(self) -> dict[str, Any]:
        return dict(self.engine.stats())

    def completed(self) -> list[Client]:
        return [client for client in self.clients if isinstance(client.recorder.terminal, Finished)]


class Simulation:
    def __init__(self, scenario: Scenario, **options: Any) -> None:
        self.now = 0.0
        self.engine = fake_engine(scenario.config, start=False, now=lambda: self.now, **options)
        self.board = self.engine.scheduler.board
        self.cache = self.engine.scheduler.services.cache
        self.outbox = self.engine.scheduler.services.outbox
        self.executor: Any = self.engine.scheduler.services.executor
        self.trace = Trace(scenario, self.engine)
        self.by_id: dict[int, Client] = {}
        self.reservations: dict[int, Any] = {}
        self.executor.during_wait = self._during_wait
        self.executor.on_release = self._on_release
        self._admit, self.board.ledger.admit = self.board.ledger.admit, self._on_admit  # type: ignore[method-assign]
        self._pending = list(enumerate(scenario.arrivals))
        self._due = scenario.arrivals[0].gap

    def run(self) -> Trace:
        while self._pending or self.reservations:
            self.step()
            assert self.trace.steps < MAX_STEPS, "the engine makes no progress"
        self.engine.thread.step()
        assert not any(client.recorder.late for client in self.trace.clients), "told after the end"
        return self.trace

    def step(self) -> None:
        self._arrive()
        self._cancel(in_unit=False)
        has_run = self.engine.thread.step()
        assert self.engine.thread.failure is None, self.engine.thread.failure
        assert has_run or not self.outbox, "events wait, and nothing runs"
        self.cache.check()
        self._check_protection()
        self._release_ended()
        self.trace.steps += 1
        self.now += 1.0

    def _arrive(self) -> None:
        while self._pending and self.trace.steps >= self._due:
            index, arrival = self._pending.pop(0)
            self._submit(index, arrival)
            if self._pending:
                self._due = self.trace.steps + self._pending[0][1].gap

    def _submit(self, index: int, arrival: Arrival) -> None:
        client = Client(index, arrival, self._prompt(index, arrival), arrival.session(), self.now)
        self.trace.clients.append(client)
        lifetime = self.engine._lifetime
        try:
            reservation = self.engine.reserve()
        except ServerOverloadedError as error:
            client.refused = error
            self.trace.overloads.append((lifetime.outstanding, lifetime.capacity))
            return
        self.trace.max_outstanding = max(self.trace.max_outstanding, lifetime.outstanding)
        request = fake_request(
            client.prompt, arrival.output, session=client.session, seed=index, request_id=str(index)
        )
        try:
            reservation.submit(request, lambda event: self._sink(client, event))
        except NinferError as error:
            client.refused = error
            reservation.release()
            return
        client.id = reservation._request.id  # type: ignore[attr-defined]
        self.by_id[client.id] = client
        self.reservations[index] = reservation

    def _prompt(self, index: int, arrival: Arrival) -> list[int]:
        prompt = arrival.prompt(index)
        finished = self.trace.completed()
        if arrival.follows and finished:
            turn = finished[-1].prompt + finished[-1].recorder.tokens + prompt[-arrival.tail :]
            if len(turn) <= self.trace.scenario.config.max_context:
                return turn
        return prompt

    def _sink(self, client: Client, event: Event) -> None:
        client.recorder(event)
        if isinstance(event, Finished | Failed):
            client.ended_at = self.now
            client.stats_at_end = dict(self.engine.stats())
            client.reserved_pages_at_end = self._active_claims()

    def _active_claims(self) -> int:
        return sum(row.entitlement.main_pages for row in self.board.active())

    def _cancel(self, *, in_unit: bool) -> None:
        for client in self.trace.clients:
            arrival, reservation = client.arrival, self.reservations.get(client.index)
            if reservation is None or arrival.cancel is None or arrival.in_unit is not in_unit:
                continue
            if self.now >= client.reserved_at + arrival.cancel and client.cancelled_at is None:
                client.cancelled_at = self.now
                client.tokens_at_cancel = len(client.session.committed)
                reservation.cancel()

    def _during_wait(self) -> None:
        assert not self.outbox, "events wait for the device"
        ready = self.board.in_state(RequestState.DECODE_READY)
        others = ["control"] * len(self.board.in_state(RequestState.CONTROL_READY))
        others += ["prefill"] * len(self.board.in_state(RequestState.PREFILL))
        kind, lanes = self.executor.units[-1]
        self.trace.units.append(
            Unit(self.trace.steps, kind, lanes, tuple(row.lane for row in ready), tuple(others))
        )
        self._cancel(in_unit=True)

    def _on_release(self, lane: int, state: FakeLane) -> None:
        row = self.board.lanes[lane]
        assert row is not None
        self.by_id[row.id].lane_at_release = state
        committed = self.cache.tasks[row.id].tokens.tolist()
        assert committed == state.history[: len(committed)], "the cache's tokens are not the device's"

    def _check_protection(self) -> None:
        epoch = self.board.ledger.epoch
        if epoch is not None and not epoch.donors:
            assert self.board.ledger.fits(epoch.head), "the donors are gone and the head does not fit"

    def _on_admit(self, request_id: int, entitlement: Entitlement) -> None:
        board = self.board
        client = self.by_id[request_id]
        client.admitted_at = self.now
        overtaken = [request for request in board.waiting if request.id < request_id]
        epoch, ledger = board.ledger.epoch, board.ledger
        is_protected = bool(overtaken and epoch and epoch.head_id == overtaken[0].id)
        self.trace.admissions.append(
            Admission(
                step=self.trace.steps,
                client=client.index,
                ready=len(board.in_state(RequestState.DECODE_READY)),
                had_owner=board.owner is not None,
                overtaken=tuple(self.by_id[request.id].index for request in overtaken),
                head_fitted=bool(overtaken) and ledger.fits(overtaken[0].entitlement),
                is_protected=is_protected,
                skipped_borrower=is_protected
                and any(ledger.may_borrow(r.entitlement) for r in overtaken[1:]),
                num_units=len(self.trace.units),
            )
        )
        self._admit(request_id, entitlement)

    def _release_ended(self) -> None:
        for index in [i for i in self.reservations if self.trace.clients[i].recorder.terminal is not None]:
            self.reservations.pop(index).release()


def simulate(scenario: Scenario, **options: Any) -> Trace:
    return Simulation(scenario, **options).run()


def is_timeout(client: Client) -> bool:
    terminal = client.recorder.terminal
    return isinstance(terminal, Failed) and isinstance(terminal.error, QueueTimeoutError)
