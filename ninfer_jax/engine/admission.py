"""Who may start next: entitlement vectors, one protected head, persistent-safe backfill.

Plain arithmetic over numbers; it knows nothing of requests, caches or devices, so the fairness rules
can be tested on their own.

A request is admitted with everything it may ever need, in every dimension at once, or not at all. The
oldest waiting request is the *head*. When it does not fit, a *protection epoch* opens: the active
requests of that moment are the incumbents, and the shortest prefix of them, by remaining work, whose
end lets the head fit are the *donors*. Until then others may be admitted only as *borrowers* that the
head could start beside: survivors + borrowers + candidate + head within the capacity. That needs no
guess of how long anything takes: when the donors are gone the head fits, whoever else still runs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Entitlement(NamedTuple):
    """What one request may ever need, in every dimension; or a capacity, or a sum."""

    lanes: int = 0
    main_pages: int = 0
    state_slots: int = 0

    def plus(self, other: "Entitlement") -> "Entitlement":
        return Entitlement(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: "Entitlement") -> "Entitlement":
        return Entitlement(*(a - b for a, b in zip(self, other, strict=True)))

    def fits(self, capacity: "Entitlement") -> bool:
        return all(a <= b for a, b in zip(self, capacity, strict=True))


def total(entitlements: Iterable[Entitlement]) -> Entitlement:
    result = Entitlement()
    for entitlement in entitlements:
        result = result.plus(entitlement)
    return result


class Incumbent(NamedTuple):
    """An active request when an epoch opens. ``work`` is an upper bound of the units it still needs."""

    id: int
    entitlement: Entitlement
    work: int


@dataclass(slots=True)
class Epoch:
    """The protection of one head. ``survivors`` are incumbents that are not donors; both they and the
    borrowers leave when they finish."""

    head_id: int
    head: Entitlement
    donors: set[int]
    survivors: dict[int, Entitlement]
    borrowers: dict[int, Entitlement] = field(default_factory=dict)

    def is_safe(self, entitlement: Entitlement, capacity: Entitlement) -> bool:
        """Whether ``entitlement`` may run beside everything that will still run when the donors are gone."""
        beside = total(self.survivors.values()).plus(total(self.borrowers.values()))
        return beside.plus(entitlement).plus(self.head).fits(capacity)


def choose_donors(
    incumbents: Sequence[Incumbent], head: Entitlement, capacity: Entitlement
) -> tuple[int, ...]:
    """The shortest prefix of the incumbents, ordered by (work, id), whose end lets the head fit."""
    remaining = total(incumbent.entitlement for incumbent in incumbents)
    donors: list[int] = []
    for incumbent in sorted(incumbents, key=lambda incumbent: (incumbent.work, incumbent.id)):
        if remaining.plus(head).fits(capacity):
            break
        donors.append(incumbent.id)
        remaining = remaining.minus(incumbent.entitlement)
    assert remaining.plus(head).fits(capacity), "the head does not fit an empty engine"
    return tuple(donors)


class AdmissionLedger:
    """What active requests hold, and the open epoch if the head is blocked."""

    def __init__(self, capacity: Entitlement) -> None:
        self.capacity = capacity
        self.used = Entitlement()
        self.epoch: Epoch | None = None
        self.revision = 0
        """Moves at every admission and release: the answer to "does anything fit" cannot change
        without it, or without a new arrival."""
        self._active: dict[int, Entitlement] = {}

    def is_possible(self, entitlement: Entitlement) -> bool:
        """Whether an empty engine could run it."""
        return entitlement.fits(self.capacity)

    def fits(self, entitlement: Entitlement) -> bool:
        return self.used.plus(entitlement).fits(self.capacity)

    def protect(self, head_id: int, head: Entitlement, incumbents: Sequence[Incumbent]) -> Epoch:
        """Open the head's epoch, or return it when it is open. Later arrivals change nothing in it."""
        if self.epoch is None or self.epoch.head_id != head_id:
            donors = set(choose_donors(incumbents, head, self.capacity))
            survivors = {i.id: i.entitlement for i in incumbents if i.id not in donors}
            self.epoch = Epoch(head_id, head, donors, survivors)
        return self.epoch

    def may_borrow(self, entitlement: Entitlement) -> bool:
        """Whether a request behind the protected head may start now."""
        assert self.epoch is not None
        return self.fits(entitlement) and self.epoch.is_safe(entitlement, self.capacity)

    def admit(self, request_id: int, entitlement: Entitlement) -> None:
        assert request_id not in self._active, f"request {request_id} is admitted twice"
        assert self.fits(entitlement), f"request {request_id} does not fit"
        self._active[request_id] = entitlement
        self.used = self.used.plus(entitlement)
        self.revision += 1
        if self.epoch is not None:
            if request_id == self.epoch.head_id:
                self.epoch = None
            else:
                self.epoch.borrowers[request_id] = entitlement

    def release(self, request_id: int) -> None:
        self.used = self.used.minus(self._active.pop(request_id))
        self.revision += 1
        if self.epoch is not None:
            self.epoch.donors.discard(request_id)
            self.epoch.survivors.pop(request_id, None)
            self.epoch.borrowers.pop(request_id, None)

    def clear(self) -> None:
        """Nobody is active or protected any more."""
        self.used = Entitlement()
        self.epoch = None
        self.revision += 1
        self._active.clear()

    def withdraw(self, request_id: int) -> None:
        """A waiting request is gone; if it was the protected head, its epoch ends."""
        if self.epoch is not None and self.epoch.head_id == request_id:
            self.epoch = None
            self.revision += 1
