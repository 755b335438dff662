"""State slots: one writer each, checkpoints immutable, and C always left for requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.cache import SlotPool, SlotUse
from ninfer_jax.errors import EngineError


def test_active_requests_find_a_slot_when_all_checkpoints_are_taken() -> None:
    slots = SlotPool(2, 3)
    frozen = [slots.capture() for _ in range(3)]
    for slot in frozen:
        slots.freeze(slot)
    assert not slots.can_capture
    active = [slots.allocate(), slots.allocate()]
    assert sorted(frozen + active) == list(range(5))
    assert slots.num_slots == 5
    assert slots.count(SlotUse.FREE) == 0


def test_exhaustion_is_an_error_with_the_figures() -> None:
    slots = SlotPool(1, 1)
    slots.allocate()
    with pytest.raises(EngineError, match="all 1 state slots of active requests are taken"):
        slots.allocate()
    slots.capture()
    with pytest.raises(EngineError, match="all 1 state slots of checkpoints are taken"):
        slots.capture()
    with pytest.raises(EngineError, match="all 0 state slots of checkpoints"):
        SlotPool(4).capture()


def test_a_frozen_image_refuses_writing_until_it_is_released() -> None:
    slots = SlotPool(1, 1)
    slot = slots.allocate()
    slots.check_writable(slot)
    slots.freeze(slot)
    with pytest.raises(EngineError, match=f"state slot {slot} is frozen"):
        slots.check_writable(slot)
    slots.release(slot)
    with pytest.raises(EngineError, match=f"state slot {slot} is free"):
        slots.check_writable(slot)


def test_freezing_in_place_needs_room_and_a_finished_capture_has_it() -> None:
    slots = SlotPool(2, 1)
    first, second = slots.allocate(), slots.allocate()
    slots.freeze(first)
    with pytest.raises(EngineError, match="checkpoints are taken"):
        slots.freeze(second)
    assert slots.use(second) is SlotUse.ACTIVE
    slots.release(first)
    slots.freeze(slots.capture())
    slots.check()


def test_giving_back_twice_and_freezing_what_nobody_writes_are_bugs() -> None:
    slots = SlotPool(1, 1)
    slot = slots.allocate()
    slots.freeze(slot)
    with pytest.raises(AssertionError, match="not written"):
        slots.freeze(slot)
    slots.release(slot)
    with pytest.raises(AssertionError, match="is free"):
        slots.release(slot)


@given(
    st.integers(1, 4),
    st.integers(0, 4),
    st.lists(st.tuples(st.sampled_from(("allocate", "capture", "freeze", "release")), st.integers(0, 7))),
)
def test_any_sequence_keeps_the_books(
    num_lanes: int, num_checkpoints: int, steps: list[tuple[str, int]]
) -> None:
    """Compared with a plain dict of who holds what; an operation without room changes nothing."""
    slots = SlotPool(num_lanes, num_checkpoints)
    held: dict[int, SlotUse] = {}

    def count(*uses: SlotUse) -> int:
        return sum(use in uses for use in held.values())

    for operation, pick in steps:
        has_room = count(SlotUse.CAPTURING, SlotUse.FROZEN) < num_checkpoints
        chosen = sorted(held)[pick % len(held)] if held else -1
        if operation == "allocate" and count(SlotUse.ACTIVE) < num_lanes:
            slot = slots.allocate()
            assert slot not in held
            held[slot] = SlotUse.ACTIVE
        elif operation == "capture" and has_room:
            slot = slots.capture()
            assert slot not in held
            held[slot] = SlotUse.CAPTURING
        elif operation == "freeze" and held.get(chosen) is SlotUse.CAPTURING:
            slots.freeze(chosen)
            held[chosen] = SlotUse.FROZEN
        elif operation == "freeze" and held.get(chosen) is SlotUse.ACTIVE:
            if has_room:
                slots.freeze(chosen)
                held[chosen] = SlotUse.FROZEN
            else:
                with pytest.raises(EngineError):
                    slots.freeze(chosen)
        elif operation == "release" and held:
            slots.release(chosen)
            del held[chosen]
        slots.check()
        assert slots.can_capture == (count(SlotUse.CAPTURING, SlotUse.FROZEN) < num_checkpoints)
        assert {s: slots.use(s) for s in held} == held
        assert slots.count(SlotUse.FREE) == slots.num_slots - len(held)
