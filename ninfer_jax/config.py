"""Frozen configurations, resolved once at start-up; nothing edits one later."""

from dataclasses import dataclass
from typing import Literal

WeightFormat = Literal["f32", "bf16", "int8"]
CacheLayout = Literal["paged", "contiguous"]

PAGE_SIZE = 64
"""Token positions in one KV page, in every pool."""

NULL_PAGE = 0
"""Page 0 belongs to nobody: padding rows and columns write there and nothing reads it."""


def pages_for(num_tokens: int) -> int:
    """Whole pages that hold ``num_tokens`` positions."""
    return -(-num_tokens // PAGE_SIZE)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything the engine needs besides the model. Token counts; every "auto" is already a number.

    ``kv_capacity`` is the shared pool in tokens (rounded up to whole pages), at least ``max_context``;
    the contiguous layout gives every lane ``max_context`` instead. ``device_state_slots`` are slots for
    checkpoints of recurrent state, beside the one that each lane is guaranteed.
    """

    max_context: int = 8192
    kv_capacity: int = 8192
    max_concurrency: int = 1
    max_pending_requests: int = 16
    pending_timeout: float = 30.0
    prefill_chunk: int = 1024
    weights: WeightFormat | None = None
    cache_layout: CacheLayout = "paged"
    prefix_reuse: bool = True
    top_k_cap: int = 20
    device_state_slots: int = 0

    @property
    def pages_per_lane(self) -> int:
        """Entries of one lane's block table."""
        return pages_for(self.max_context)

    @property
    def num_pages(self) -> int:
        """Usable KV pages; the arrays hold one more, the null page."""
        if self.cache_layout == "contiguous":
            return self.max_concurrency * self.pages_per_lane
        return pages_for(self.kv_capacity)

    @property
    def num_slots(self) -> int:
        """State images: one a lane, and those for checkpoints."""
        return self.max_concurrency + self.device_state_slots
