"""The ladder of shapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.engine.shapes import CALL_COST, ShapeLadder


def test_the_ladder_ends_at_the_chunk():
    assert ShapeLadder.of(3, 1024) == ShapeLadder((1, 2, 3), (16, 32, 64, 128, 256, 512, 1024))
    assert ShapeLadder.of(1, 100) == ShapeLadder((1,), (16, 32, 64, 100))
    assert ShapeLadder.of(1, 8).prefill_buckets == (8,)


@given(st.integers(1, 5000), st.sampled_from([8, 16, 100, 1024, 4096]))
def test_a_split_covers_the_length_with_full_buckets_first(length, chunk):
    ladder = ShapeLadder.of(1, chunk)
    plan = ladder.split(length)
    assert set(plan) <= set(ladder.prefill_buckets)
    assert sum(plan[:-1]) < length <= sum(plan)
    assert list(plan) == sorted(plan, reverse=True)


@given(st.integers(1, 1024))
def test_a_split_is_never_dearer_than_one_padded_bucket(length):
    ladder = ShapeLadder.of(1, 1024)
    padded = next(bucket for bucket in ladder.prefill_buckets if bucket >= length)
    plan = ladder.split(length)
    assert sum(plan) + CALL_COST * len(plan) <= padded + CALL_COST


@pytest.mark.parametrize(
    ("length", "plan"), [(1, (16,)), (64, (64,)), (150, (128, 32)), (300, (256, 64)), (1500, (1024, 512))]
)
def test_splits(length, plan):
    assert ShapeLadder.of(1, 1024).split(length) == plan


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="positive"):
        ShapeLadder.of(0, 16)
    with pytest.raises(ValueError, match="nothing to split"):
        ShapeLadder.of(1, 16).split(0)
