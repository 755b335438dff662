"""Taking resources for one request may need copies; those run across boundaries as a transaction."""

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from ninfer_jax.cache.policy import Candidate


class TransactionState(Enum):
    IN_FLIGHT = "in_flight"
    COMMITTED = "committed"
    ABORTED = "aborted"


class ResourceTransaction(Protocol):
    """At most one is open. Active tasks keep running meanwhile; their mappings do not change."""

    @property
    def candidate(self) -> Candidate: ...

    def progress(self) -> TransactionState:
        """Do what can be done now without waiting."""
        ...

    def abort(self) -> None:
        """Undo an open transaction: the source stays valid, destinations are returned."""
        ...


class ImmediateTransaction:
    """Reuse without copies: committed as soon as it exists."""

    def __init__(self, candidate: Candidate, undo: Callable[[], None]) -> None:
        self.candidate = candidate
        self._undo = undo

    def progress(self) -> TransactionState:
        return TransactionState.COMMITTED

    def abort(self) -> None:
        self._undo()
