"""The cache's interface: who may hold which pages and state slots, and what is in them.

Host bookkeeping only; the arrays belong to the executor. Everything here is called by the engine
thread, between units, except where a method says otherwise. Page ids are stable while a task holds
them, so a block table given to the device at admission stays true until the task is freed.

*Reserved* pages are what active tasks are entitled to; *held* ones are physical pages with a holder.
Sharing makes held smaller than reserved, never larger, which is why admission by entitlements alone
guarantees that no admitted task ever lacks a page.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from ninfer_jax.cache.policy import Candidate, PrefixPolicy
from ninfer_jax.cache.slots import SlotPool, SlotUse
from ninfer_jax.cache.storage import Storage
from ninfer_jax.cache.table import Task, TaskTable
from ninfer_jax.cache.transaction import ImmediateTransaction, ResourceTransaction
from ninfer_jax.config import PAGE_SIZE, pages_for
from ninfer_jax.types import PreparedPrompt


class PageCounts(NamedTuple):
    """``free + held + cached == capacity``; ``reserved`` is the sum of active entitlements."""

    free: int
    held: int
    cached: int
    capacity: int
    reserved: int
    shared: int
    """References beyond the first: pages saved by sharing among active tasks."""


class PageCacheView(NamedTuple):
    """What the programs need of one task: its pages in ordinal order, its state slot, its length."""

    storage: Storage
    block_table: tuple[int, ...]
    slot: int
    total_len: int

    @property
    def pages(self) -> tuple[int, ...]:
        return self.block_table


class ContiguousCacheView(NamedTuple):
    """The same for a fixed region: ``num_pages`` consecutive pages from ``first_page``."""

    storage: Storage
    first_page: int
    num_pages: int
    slot: int
    total_len: int

    @property
    def pages(self) -> tuple[int, ...]:
        return tuple(range(self.first_page, self.first_page + self.num_pages))


CacheView: TypeAlias = PageCacheView | ContiguousCacheView


class KVCache(ABC):
    """Pages for tasks. A *task* is one admitted request, named by a number that is never used again."""

    def __init__(self, storage: Storage, policy: PrefixPolicy) -> None:
        self.storage = storage
        self.policy = policy
        self.slots = SlotPool(storage.num_lanes, storage.num_checkpoints)
        policy.attach(self.slots, self._forget)
        self.tasks = TaskTable()
        self._reserved = 0

    @property
    def capacity(self) -> int:
        """Usable pages, the null page excluded. Constant."""
        return self.storage.num_pages

    @staticmethod
    def entitled_pages(prompt_len: int, effective_output: int) -> int:
        """Pages to reserve for a whole request, whatever is reused: the last output token is never
        written, so ``ceil((prompt + output - 1) / 64)``. An output of 0 still writes the prompt."""
        return pages_for(prompt_len + max(effective_output, 1) - 1)

    def candidates(self, prompt: PreparedPrompt) -> tuple[Candidate, ...]:
        """Verified starting points, best first, root last. Modifies nothing; valid until the next
        ``begin``, ``advance`` or ``free``."""
        return self.policy.candidates(prompt)

    def capture_frontiers(self, prompt: PreparedPrompt, base: int) -> tuple[int, ...]:
        """Where prefill chunks must end, see the policy. Modifies nothing."""
        return self.policy.capture_frontiers(prompt, base)

    def begin(
        self, task_id: int, lane: int, prompt: PreparedPrompt, num_pages: int, candidate: Candidate
    ) -> ResourceTransaction:
        """Take a slot and ``num_pages`` for a new task, sharing ``candidate``'s. All or nothing.

        On return the destination pages are reserved; the task may be used once the transaction reports
        COMMITTED. Reuse without copies commits at once. Raises AssertionError, with nothing changed,
        when the entitlements do not fit: admission has to check first.
        """
        assert self._reserved + num_pages <= self.capacity, "reserved beyond the pool's capacity"
        assert candidate.num_tokens < len(prompt.token_ids), "a hit must leave a token to compute"
        slot = self.slots.allocate()
        pages = self._take(lane, num_pages, candidate)
        task = Task(task_id, lane, pages, slot, candidate.num_tokens)
        task.tokens.extend(prompt.token_ids[: candidate.num_tokens])
        self.tasks.add(task)
        self._reserved += num_pages
        self.policy.started(task, prompt, candidate)
        return ImmediateTransaction(candidate, lambda: self.free(task_id))

    def advance(self, task_id: int, token_ids: Sequence[int]) -> None:
        """The device has committed these ids at the task's frontier. Pages that became full may be
        published to others; the task's own table never changes. Touches no other task."""
        task = self.tasks[task_id]
        task.tokens.extend(token_ids)
        assert task.frontier <= len(task.pages) * PAGE_SIZE, "written past the entitlement"
        self.policy.advanced(task)

    def capture(self, task_id: int) -> int | None:
        """The task is at one of its capture frontiers: a slot to copy its image to now, or None."""
        return self.policy.capture(self.tasks[task_id])

    def free(self, task_id: int) -> None:
        """End a task: publish what is worth keeping, return its pages, slot and entitlement. Never fails
        for lack of space. Raises KeyError for a task that does not exist (never twice)."""
        task = self.tasks.remove(task_id)
        self.policy.finished(task)
        if self.slots.use(task.slot) is SlotUse.ACTIVE:  # else the policy has frozen it
            self.slots.release(task.slot)
        self._give_back(task)
        self._reserved -= len(task.pages)

    @abstractmethod
    def view(self, task_id: int) -> CacheView:
        """The task's pages and committed length. The pages stay valid until ``free``; the length
        until the next ``advance``. Modifies nothing."""

    @abstractmethod
    def counts(self) -> PageCounts:
        """Where the pages are now. Modifies nothing."""

    @abstractmethod
    def clear(self) -> None:
        """Drop all contents that no active task holds."""

    def check(self) -> None:
        """Raise AssertionError on any broken invariant. Slow; for tests and for idle time."""
        counts = self.counts()
        assert counts.free + counts.held + counts.cached == counts.capacity, f"pages lost: {counts}"
        reserved = sum(len(task.pages) for task in self.tasks)
        assert counts.reserved == reserved <= counts.capacity, f"reservations differ: {counts}"
        assert counts.held + counts.shared == reserved, f"references differ: {counts}"
        self.slots.check()
        written = [task.slot for task in self.tasks]
        assert len(set(written)) == len(written), "two tasks write one state image"
        assert all(self.slots.use(slot) is SlotUse.ACTIVE for slot in written), "a task's image is frozen"
        self.policy.check()
        self._check_pages()

    @abstractmethod
    def _take(self, lane: int, num_pages: int, candidate: Candidate) -> tuple[int, ...]: ...

    @abstractmethod
    def _give_back(self, task: Task) -> None: ...

    @abstractmethod
    def _forget(self, page: int) -> None: ...

    @abstractmethod
    def _check_pages(self) -> None: ...
