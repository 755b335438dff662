"""What may be reused and what is kept: the seams at admission, in prefill and at finish.

Two policies so far. :class:`RootOnlyPolicy` starts every request from nothing; models with recurrent
state use it, because pages without the state at the same token are not a prefix. :class:`WholePagePolicy`
shares whole pages of pure-attention models. A policy with state checkpoints fits the same calls: more
candidates, capture frontiers inside the prompt, publication at the end.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from ninfer_jax.cache.prefix import PrefixCache
from ninfer_jax.cache.slots import SlotPool
from ninfer_jax.cache.table import Task
from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.types import PreparedPrompt


class ReusePath(Enum):
    """Where a request's reused prefix came from; the values appear in logs and counters."""

    ROOT = "root"
    PRIVATE_ENDPOINT = "private_endpoint"
    PRIVATE_TURN_CLOSURE = "private_turn_closure"
    PRIVATE_RESPONSE_REPLAY = "private_response_replay"
    PRIVATE_LONG_ANCHOR = "private_long_anchor"
    SHARED_STABLE_PREFIX = "shared_stable_prefix"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A verified starting point: ``num_tokens`` of the prompt are in ``pages`` already.

    ``pages`` are shared whole; where the frontier lies inside a page, ``tail_page`` holds that page's
    start, and the task gets a copy. ``image`` is a frozen slot with the state at the frontier, which the
    task's own slot becomes a copy of; without it that starts at zero.
    """

    path: ReusePath
    num_tokens: int = 0
    pages: tuple[int, ...] = ()
    tail_page: int | None = None
    image: int | None = None


ROOT = Candidate(ReusePath.ROOT)


class PrefixPolicy(ABC):
    """Every call comes from the engine thread, between units.

    A policy that keeps state owns the slots it froze: it gives them back to ``slots`` when it drops a
    checkpoint, and tells ``forget`` each page that it kept and no longer does.
    """

    reads_frontiers: ClassVar[bool] = False
    """Whether ``capture_frontiers`` looks at ``prompt.frontiers``; each costs the text side a rendering,
    so it finds none for a policy that does not."""

    slots: SlotPool
    forget: Callable[[int], None]

    def attach(self, slots: SlotPool, forget: Callable[[int], None]) -> None:
        """Called once, by the cache that it serves."""
        self.slots, self.forget = slots, forget

    @abstractmethod
    def candidates(self, prompt: PreparedPrompt) -> tuple[Candidate, ...]:
        """Starting points, best first, ``ROOT`` last; each is an exact match of at most all but one
        prompt token. Modifies nothing; valid until the cache next changes."""

    @abstractmethod
    def capture_frontiers(self, prompt: PreparedPrompt, base: int) -> tuple[int, ...]:
        """Ascending positions in ``(base, len(prompt))`` where a prefill chunk has to end because the
        state there is worth keeping; ``prompt.frontiers`` has the advice of the text side. Modifies
        nothing."""

    @abstractmethod
    def started(self, task: Task, prompt: PreparedPrompt, candidate: Candidate) -> None:
        """``task`` now holds ``candidate``'s pages."""

    @abstractmethod
    def advanced(self, task: Task) -> None:
        """``task.tokens`` has grown by what a unit committed."""

    @abstractmethod
    def capture(self, task: Task) -> int | None:
        """``task`` is at one of its capture frontiers: a slot of ``slots.capture()`` that its image is to
        be copied to, or None. It is copied and frozen before anything else happens."""

    @abstractmethod
    def finished(self, task: Task) -> None:
        """Last call for a task, before its pages are let go: publish what should outlive it, its image
        by freezing ``task.slot``. Never blocks and never needs memory; what cannot be kept is dropped."""

    @abstractmethod
    def keeps(self, page: int) -> bool:
        """Whether a page without holders still has contents worth keeping."""

    @abstractmethod
    def evict(self, page: int) -> Sequence[int]:
        """Forget a kept page; returns it and every page that can no longer be found without it."""

    @abstractmethod
    def check(self) -> None:
        """Raise AssertionError on a broken invariant."""


class RootOnlyPolicy(PrefixPolicy):
    """No reuse and nothing left behind."""

    def candidates(self, prompt: PreparedPrompt) -> tuple[Candidate, ...]:
        return (ROOT,)

    def capture_frontiers(self, prompt: PreparedPrompt, base: int) -> tuple[int, ...]:
        return ()

    def started(self, task: Task, prompt: PreparedPrompt, candidate: Candidate) -> None:
        assert candidate is ROOT

    def advanced(self, task: Task) -> None:
        pass

    def capture(self, task: Task) -> int | None:
        return None

    def finished(self, task: Task) -> None:
        pass

    def keeps(self, page: int) -> bool:
        return False

    def evict(self, page: int) -> Sequence[int]:
        raise AssertionError(f"page {page} was kept by nobody")

    def check(self) -> None:
        pass


class WholePagePolicy(PrefixPolicy):
    """Shares full pages by exact tokens, as soon as a unit has committed them.

    Any chain of full pages is a complete state for pure attention, so nothing is captured and any page
    boundary is a starting point. Prompts with media do not take part: token ids alone do not identify
    their contents.
    """

    def __init__(self, index: PrefixCache | None = None) -> None:
        self.index = index or PrefixCache()

    def candidates(self, prompt: PreparedPrompt) -> tuple[Candidate, ...]:
        if not is_text(prompt):
            return (ROOT,)
        # At least one prompt token stays to be computed: its logits give the first output token.
        chain = self.index.match(prompt.token_ids, len(prompt.token_ids) - 1)
        if not chain:
            return (ROOT,)
        pages = tuple(node.page for node in chain)
        return (Candidate(ReusePath.SHARED_STABLE_PREFIX, len(chain) * PAGE_SIZE, pages), ROOT)

    def capture_frontiers(self, prompt: PreparedPrompt, base: int) -> tuple[int, ...]:
        return ()

    def started(self, task: Task, prompt: PreparedPrompt, candidate: Candidate) -> None:
        if not is_text(prompt):
            return
        task.num_published = len(candidate.pages)
        chain = self.index.match(task.tokens, candidate.num_tokens)
        assert tuple(node.page for node in chain) == candidate.pages, "the match has changed"
        task.anchor = chain[-1] if chain else self.index.root

    def advanced(self, task: Task) -> None:
        while task.anchor is not None and (task.num_published + 1) * PAGE_SIZE <= task.frontier:
            self._publish_next(task)

    def _publish_next(self, task: Task) -> None:
        assert task.anchor is not None
        if not self.index.is_attached(task.anchor):
            task.anchor = None  # the chain above was evicted: nothing below can be found again
            return
        start = task.num_published * PAGE_SIZE
        block = task.tokens[start : start + PAGE_SIZE]
        task.anchor = self.index.insert(task.anchor, block, task.pages[task.num_published])
        task.num_published += 1

    def capture(self, task: Task) -> int | None:
        return None

    def finished(self, task: Task) -> None:
        self.advanced(task)

    def keeps(self, page: int) -> bool:
        return page in self.index

    def evict(self, page: int) -> Sequence[int]:
        return self.index.remove(page)

    def check(self) -> None:
        self.index.check()


def is_text(prompt: PreparedPrompt) -> bool:
    """Whether token ids alone identify the prompt."""
    return prompt.token_types is None or not any(prompt.token_types)
