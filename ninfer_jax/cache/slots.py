"""Who may write which state image.

A *state image* is everything a sequence keeps outside its pages: rule and convolution state of every
recurrent layer, and the continuation hidden. It is one unit, held in one *slot* of a pool that is not
tied to lanes.
"""

from enum import Enum

from ninfer_jax.errors import EngineError


class SlotUse(Enum):
    FREE = "free"
    ACTIVE = "active"
    """A running request's; it alone writes there."""
    CAPTURING = "capturing"
    """Taken for a checkpoint whose copy is not frozen yet."""
    FROZEN = "frozen"
    """A checkpoint: immutable until it is released."""


class SlotPool:
    """``C + H`` slots. At most H hold checkpoints, so C active requests always find one."""

    def __init__(self, num_lanes: int, num_checkpoints: int = 0) -> None:
        self.num_lanes = num_lanes
        self.num_checkpoints = num_checkpoints
        self._uses = [SlotUse.FREE] * (num_lanes + num_checkpoints)
        self._free = list(range(len(self._uses) - 1, -1, -1))

    @property
    def num_slots(self) -> int:
        return len(self._uses)

    @property
    def can_capture(self) -> bool:
        """Whether one more checkpoint has a slot."""
        return self.count(SlotUse.CAPTURING, SlotUse.FROZEN) < self.num_checkpoints

    def count(self, *uses: SlotUse) -> int:
        """Slots in any of these uses."""
        return sum(use in uses for use in self._uses)

    def use(self, slot: int) -> SlotUse:
        return self._uses[slot]

    def allocate(self) -> int:
        """A slot for a request that starts. Raises EngineError when all C are active."""
        if self.count(SlotUse.ACTIVE) >= self.num_lanes:
            raise EngineError(f"all {self.num_lanes} state slots of active requests are taken")
        return self._take(SlotUse.ACTIVE)

    def capture(self) -> int:
        """A slot for the copy of an active image. Raises EngineError when all H hold checkpoints."""
        self._check_room()
        return self._take(SlotUse.CAPTURING)

    def freeze(self, slot: int) -> None:
        """Make an image immutable where it is: a finished capture, or the last state of a request that
        ends. Raises EngineError when all H hold checkpoints."""
        assert self._uses[slot] in (SlotUse.ACTIVE, SlotUse.CAPTURING), f"slot {slot} is not written"
        if self._uses[slot] is SlotUse.ACTIVE:
            self._check_room()
        self._uses[slot] = SlotUse.FROZEN

    def release(self, slot: int) -> None:
        """Give a slot back, whatever it held."""
        assert self._uses[slot] is not SlotUse.FREE, f"slot {slot} is free"
        self._uses[slot] = SlotUse.FREE
        self._free.append(slot)

    def check_writable(self, slot: int) -> None:
        """Raises EngineError for a slot that is frozen or nobody's."""
        if self._uses[slot] not in (SlotUse.ACTIVE, SlotUse.CAPTURING):
            raise EngineError(f"state slot {slot} is {self._uses[slot].value}: it cannot be written")

    def check(self) -> None:
        """Raise AssertionError unless every slot is free or in use, and C remain for requests."""
        assert len(set(self._free)) == len(self._free), "a slot is twice in the free list"
        assert {s for s, use in enumerate(self._uses) if use is SlotUse.FREE} == set(self._free)
        assert self.count(SlotUse.ACTIVE) <= self.num_lanes, "more active images than lanes"
        assert self.count(SlotUse.CAPTURING, SlotUse.FROZEN) <= self.num_checkpoints, "too many checkpoints"

    def _check_room(self) -> None:
        if not self.can_capture:
            raise EngineError(f"all {self.num_checkpoints} state slots of checkpoints are taken")

    def _take(self, use: SlotUse) -> int:
        slot = self._free.pop()  # never empty: both kinds are within their limits
        self._uses[slot] = use
        return slot
