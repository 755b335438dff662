"""What the parts of the scheduler share: the services they use and the state they change."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ninfer_jax.cache import KVCache, ResourceTransaction, SlotUse
from ninfer_jax.engine.accounting import ClockTotals, HostClock
from ninfer_jax.engine.admission import AdmissionLedger, Entitlement
from ninfer_jax.engine.executor import Executor
from ninfer_jax.engine.observer import EngineObserver
from ninfer_jax.engine.outbox import Outbox
from ninfer_jax.engine.request import EngineRequest, RequestState
from ninfer_jax.observe.counters import EngineGauges, StatsBook

FaultPoint = Callable[[str], None]
"""Tests raise from it at a named step; production has none."""


@dataclass(frozen=True, slots=True)
class Services:
    """Fixed for the engine's life. ``prefill_chunk`` tokens bound the pause that one prompt puts
    between two decode rounds."""

    executor: Executor
    cache: KVCache
    clock: HostClock
    now: Callable[[], float]
    observer: EngineObserver
    outbox: Outbox
    max_concurrency: int
    prefill_chunk: int
    fault: FaultPoint | None = None

    def step(self, name: str) -> None:
        if self.fault is not None:
            self.fault(name)


class Published(NamedTuple):
    """One consistent state for readers on other threads; never written again."""

    book: StatsBook
    host: ClockTotals


@dataclass(slots=True)
class Board:
    """The scheduler's state. Only the engine thread changes it; ``published`` may be read by anybody."""

    services: Services
    ledger: AdmissionLedger
    lanes: list[EngineRequest | None]
    waiting: deque[EngineRequest] = field(default_factory=deque)
    live: dict[int, EngineRequest] = field(default_factory=dict)
    """Every accepted request that has not had its terminal event."""
    owner: EngineRequest | None = None
    """The one request that is prefilling or taking its resources."""
    transaction: ResourceTransaction | None = None
    book: StatsBook = field(default_factory=StatsBook)
    published: Published = field(init=False)

    def __post_init__(self) -> None:
        self.publish()

    @classmethod
    def empty(cls, services: Services) -> "Board":
        lanes = services.max_concurrency
        ledger = AdmissionLedger(Entitlement(lanes, services.cache.capacity, lanes))
        return cls(services, ledger, [None] * lanes)

    @property
    def is_idle(self) -> bool:
        """Nothing to do until something arrives, is cancelled or expires."""
        return not self.waiting and not any(self.lanes)

    def active(self) -> list[EngineRequest]:
        return [row for row in self.lanes if row is not None]

    def in_state(self, state: RequestState) -> list[EngineRequest]:
        """Active requests in ``state``, in lane order."""
        return [row for row in self.lanes if row is not None and row.state is state]

    def publish(self) -> None:
        """Make the present state the one that readers see."""
        self._refresh(self.book.gauges)
        self.published = Published(self.book.copy(), self.services.clock.totals())

    def _refresh(self, gauges: EngineGauges) -> None:
        states = [row.state for row in self.lanes if row is not None]
        gauges.prefilling = states.count(RequestState.PREFILL)
        gauges.decode_ready = states.count(RequestState.DECODE_READY)
        gauges.control_ready = states.count(RequestState.CONTROL_READY)
        gauges.materializing = states.count(RequestState.MATERIALIZING)
        gauges.terminal_pending = states.count(RequestState.TERMINAL_PENDING)
        gauges.running = gauges.prefilling + gauges.decode_ready + gauges.control_ready
        gauges.waiting = len(self.waiting)
        slots = self.services.cache.slots
        gauges.capture_pending = slots.count(SlotUse.CAPTURING)
        gauges.device_state_slots_occupied = slots.num_slots - slots.count(SlotUse.FREE)
        pages = self.services.cache.counts()
        gauges.device_main_pages_occupied = pages.held
        gauges.device_main_pages_cached = pages.cached
        gauges.device_main_pages_free = pages.free
        gauges.device_main_pages_reserved = pages.reserved
        gauges.shared_active_references = pages.shared
