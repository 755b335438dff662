"""Where the engine thread's time goes: five host phases and the device wait, each moment counted once.

One stopwatch runs from boundary to boundary; switching phases reads the clock once and books the time
since the last switch, so the phases add up to the thread's wall time by construction (idle waits for
work excepted). A unit's vector is also added to every request that took part in it: that explains the
request's latency, and must not be summed over requests.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

NUM_PHASES = 6
NANOSECONDS = 1e-9


class Phase(IntEnum):
    ENGINE_BOUNDARY = 0
    """Expiry, admission and the choice of a unit."""
    PROGRAM_SUBMIT = 1
    """Handing a unit to the device."""
    PROGRAM_POST = 2
    """Reading its result and the cancellation snapshot."""
    ENGINE_COMMIT_OUTPUT = 3
    """Preview, commit and text; handing over the events, most of it while the device computes."""
    ENGINE_MAINTENANCE = 4
    """Settling ended requests and publishing statistics."""
    DEVICE_WAIT = 5
    """Blocked until the device is done; not host time."""


HOST_PHASES = tuple(phase for phase in Phase if phase is not Phase.DEVICE_WAIT)


class WorkClass(IntEnum):
    """``CONTROL`` is a forced-token append; boundaries that ran no unit are booked there too."""

    DECODE = 0
    PREFILL = 1
    CONTROL = 2


class Detail(IntEnum):
    """Slow paths inside the host phases, for a closer look; never added to the total."""

    ADMISSION = 0
    STATS_PUBLICATION = 1


def _accumulate(into: list[int], unit: list[int]) -> None:
    for phase in range(NUM_PHASES):
        into[phase] += unit[phase]


def host_seconds(nanoseconds: Sequence[int]) -> dict[str, float]:
    """The five host phases by name, and ``total``, their exact sum."""
    phases = {phase.name.lower(): nanoseconds[phase] * NANOSECONDS for phase in HOST_PHASES}
    phases["total"] = sum(phases.values())
    return phases


@dataclass(slots=True, eq=False)
class Exposure:
    """One request's share of the thread's time: all of every unit it took part in. Nanoseconds."""

    phases: list[int] = field(default_factory=lambda: [0] * NUM_PHASES)
    decode: list[int] = field(default_factory=lambda: [0] * NUM_PHASES)
    units: list[int] = field(default_factory=lambda: [0] * len(WorkClass))

    def add(self, unit: list[int], work: WorkClass) -> None:
        self.units[work] += 1
        _accumulate(self.phases, unit)
        if work is WorkClass.DECODE:
            _accumulate(self.decode, unit)

    def timing(self, queue_wait: float) -> dict[str, Any]:
        """The request log's ``engine_timing`` object."""
        return {
            "queue_wait_seconds": queue_wait,
            "device_wait_exposed_seconds": self.phases[Phase.DEVICE_WAIT] * NANOSECONDS,
            "host_exposed_seconds": host_seconds(self.phases),
            "decode": {
                "host_exposed_seconds": host_seconds(self.decode)["total"],
                "device_wait_exposed_seconds": self.decode[Phase.DEVICE_WAIT] * NANOSECONDS,
                "rounds": self.units[WorkClass.DECODE],
            },
            "units": {
                "prefill": self.units[WorkClass.PREFILL],
                "control": self.units[WorkClass.CONTROL],
            },
        }


class ClockTotals(NamedTuple):
    """Nanoseconds since start-up: ``work[class][phase]``, and the details."""

    work: tuple[tuple[int, ...], ...]
    detail_nanoseconds: tuple[int, ...]
    detail_invocations: tuple[int, ...]

    def render(self) -> dict[str, Any]:
        """Cumulative host work as the throughput record and ``/stats`` show it; seconds."""
        summed = [sum(row[phase] for row in self.work) for phase in Phase]
        classes = {
            work.name.lower(): {
                "host": host_seconds(self.work[work])["total"],
                "device_wait": self.work[work][Phase.DEVICE_WAIT] * NANOSECONDS,
            }
            for work in WorkClass
        }
        return {
            "elapsed_seconds": host_seconds(summed),
            "device_wait_seconds": summed[Phase.DEVICE_WAIT] * NANOSECONDS,
            "work_class_seconds": classes,
            "detail_subset_seconds": {
                detail.name.lower(): self.detail_nanoseconds[detail] * NANOSECONDS for detail in Detail
            },
            "detail_invocations": {detail.name.lower(): self.detail_invocations[detail] for detail in Detail},
        }


class HostClock:
    """The engine thread's stopwatch. It runs on between boundaries; only sleep is left out."""

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = now
        self._mark = now()
        self._phase = Phase.ENGINE_BOUNDARY
        self._unit = [0] * NUM_PHASES
        self._totals = [[0] * NUM_PHASES for _ in WorkClass]
        self._detail_nanoseconds = [0] * len(Detail)
        self._detail_invocations = [0] * len(Detail)

    def resume(self) -> None:
        """The time since the last reading was sleep and counts nowhere."""
        self._mark = self._now()

    def switch(self, phase: Phase) -> int:
        """From now on time belongs to ``phase``; returns the clock."""
        now = self._now()
        self._unit[self._phase] += now - self._mark
        self._mark = now
        self._phase = phase
        return now

    def stop(self, work: WorkClass) -> list[int]:
        """Book the boundary so far under ``work`` and return its nanoseconds a phase. What follows
        belongs to the next boundary."""
        self.switch(self._phase)
        unit, self._unit = self._unit, [0] * NUM_PHASES
        _accumulate(self._totals[work], unit)
        return unit

    def note(self, detail: Detail, since: int) -> None:
        self._detail_nanoseconds[detail] += self._now() - since
        self._detail_invocations[detail] += 1

    def totals(self) -> ClockTotals:
        return ClockTotals(
            tuple(map(tuple, self._totals)), tuple(self._detail_nanoseconds), tuple(self._detail_invocations)
        )
