from ninfer_jax.text.deltas import merge
from ninfer_jax.types import TextDelta, ToolCallDelta


def test_merge_joins_neighbours_of_one_place_only():
    deltas = [
        TextDelta("reasoning", "a"),
        TextDelta("reasoning", "b"),
        TextDelta("content", "c"),
        ToolCallDelta(0, "f", "{"),
        ToolCallDelta(0, None, "}"),
        ToolCallDelta(1, "g", "{}"),
    ]
    assert merge(deltas) == (
        TextDelta("reasoning", "ab"),
        TextDelta("content", "c"),
        ToolCallDelta(0, "f", "{}"),
        ToolCallDelta(1, "g", "{}"),
    )


def test_pieces_of_one_place_apart_stay_apart():
    apart = (TextDelta("content", "a"), ToolCallDelta(0, "f", "{}"), TextDelta("content", "b"))
    assert merge(apart) == apart
