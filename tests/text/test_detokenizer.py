from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.text.detokenizer import decode_step
from tests.text.fakes import decode_pieces


def test_a_character_waits_for_its_last_byte() -> None:
    rocket = "🚀".encode()
    assert decode_pieces([rocket[:1], rocket[1:2], rocket[2:3], rocket[3:]]) == ["", "", "", "🚀", ""]


def test_invalid_byte_is_shown_and_the_stream_goes_on() -> None:
    assert decode_pieces([b"a", b"\xff", b"b"]) == ["a", "\ufffd", "b", ""]


def test_unfinished_tail_is_one_replacement() -> None:
    assert decode_pieces([b"ab\xf0\x9f\x91"]) == ["ab", "\ufffd"]


@pytest.mark.parametrize("data", ["naïve".encode(), "👩‍🚀 北京".encode(), b"\xc3\x28\xe2\x82"])
def test_steps_are_pure(data: bytes) -> None:
    assert decode_step(data) == decode_step(data)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_cuts_never_matter(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert "".join(decode_pieces(pieces)) == data.decode(errors="replace")
    for text in decode_pieces(pieces):
        text.encode()  # no half characters anywhere
