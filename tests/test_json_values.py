"""JSON keeps what a prompt could show: member order and the spelling of numbers."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.json_values import MAX_DEPTH, JsonError, JsonFloat, dump_json, parse_json
from ninfer_jax.server.sse import to_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "text", ['{"b": 1.0, "a": 1e2, "c": [0.10, -1E-3, 12345678901234567890]}', "1e999", "[]", "{}"]
)
def test_spelling_and_order_survive(text):
    assert dump_json(parse_json(text)) == text


@pytest.mark.parametrize("text", [str(-(2**63)), str(2**64 - 1), str(-(2**63) - 1), str(2**64), "9" * 4000])
def test_an_integer_of_any_size_is_spelled_alike_by_both_writers(text):
    value = parse_json(f'{{"a": {text}}}')
    assert dump_json(value) == f'{{"a": {text}}}'
    assert to_json(value) == f'{{"a":{text}}}'.encode()


def test_only_integers_of_64_bits_are_integers():
    assert isinstance(parse_json(str(2**64 - 1)), int)
    assert isinstance(parse_json(str(2**64)), JsonFloat)


def test_a_float_is_still_a_number():
    number = parse_json("1.50")
    assert isinstance(number, JsonFloat)
    assert number == 1.5
    assert str(pickle.loads(pickle.dumps(number))) == "1.50"


@given(VALUES)
def test_compact_and_indented_text_equal_the_standard_library(value):
    for kwargs in ({}, {"indent": 4}, {"separators": (",", ":")}):
        assert dump_json(value, **kwargs) == json.dumps(value, ensure_ascii=False, **kwargs)


@given(VALUES)
def test_what_is_dumped_parses_back(value):
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1"),
        (b"[1] x", "Extra data"),
        (b"NaN", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"\xff\xfe", "UTF-8"),
        (b"1" * 5000, "digits"),
        (b"[" * 200 + b"]" * 200, f"{MAX_DEPTH}"),
        (b"[" * 200_000, f"{MAX_DEPTH}"),
        (b'{"a":' * 200_000, f"{MAX_DEPTH}"),
    ],
)
def test_bad_text_is_named(data, complaint):
    with pytest.raises(JsonError, match=complaint):
        parse_json(data)


def test_depth_limit_is_exact():
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(JsonError):
        parse_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_byte_order_mark_is_skipped():
    assert parse_json(b"\xef\xbb\xbf{}") == {}


def test_lone_surrogates_become_replacement_characters():
    assert parse_json(rb'{"\ud800": ["a\udc00b", "\ud83d\ude00"]}') == {"\ufffd": ["a\ufffdb", "\U0001f600"]}
