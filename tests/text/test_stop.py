import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.text.stop import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    """What is sent after each piece (and at the end), and the stop string that matched."""
    matcher = StopMatcher(stops)
    state, sent = matcher.start, []
    for piece in pieces:
        text, state, match = matcher.scan(state, piece)
        sent.append(text)
        if match is not None:
            return sent, match
    return [*sent, matcher.held(state)], None


def earliest(stops: list[str], text: str) -> tuple[str, str | None]:
    """By the definition: the first end, then the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


@pytest.mark.parametrize(
    ("stops", "pieces", "sent", "match"),
    [
        (["STOP"], ["one ", "STOP", " two"], ["one ", ""], "STOP"),
        (["beta gamma"], ["beta", " ga", "mma tail"], ["", "", ""], "beta gamma"),
        (["beta gamma"], ["be", "ta gam", "bit"], ["", "", "beta gambit", ""], None),
        (["beta"], ["say bet"], ["say ", "bet"], None),
        (["three", "two"], ["one two three"], ["one "], "two"),
        (["abcd", "bc"], ["xabcd"], ["xa"], "bc"),
        (["b", "ab"], ["ab"], [""], "ab"),
        (["aab"], ["aaa", "ab"], ["a", "a"], "aab"),
        (["\n\n"], ["line1\n", "\nline2"], ["line1", ""], "\n\n"),
    ],
)  # fmt: skip
def test_examples(stops: list[str], pieces: list[str], sent: list[str], match: str | None) -> None:
    assert run(stops, pieces) == (sent, match)


@given(
    st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.text("ab ", max_size=5)),
)
def test_equals_the_definition(stops: list[str], pieces: list[str]) -> None:
    sent, match = run(stops, pieces)
    text = "".join(pieces)
    assert ("".join(sent), match) == earliest(stops, text)


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4), st.text("ab", max_size=12))
def test_held_text_is_the_longest_suffix_that_begins_a_stop(stops: list[str], text: str) -> None:
    matcher = StopMatcher(stops)
    _, state, match = matcher.scan(matcher.start, text)
    if match is None:
        suffixes = [text[at:] for at in range(len(text) + 1)]
        assert matcher.held(state) == next(s for s in suffixes if any(stop.startswith(s) for stop in stops))


def test_no_stops_pass_everything() -> None:
    matcher = StopMatcher([])
    assert not matcher
    assert matcher.scan(matcher.start, "abc") == ("abc", (), None)


def test_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])


def test_time_is_linear() -> None:
    """A scan that falls back for each character does 5e8 steps here: more than a minute."""
    started = time.process_time()
    assert run(["a" * 5000 + "b"], ["a" * 100_000])[1] is None
    assert run(["x" * 200_000], ["x" * 100_000])[1] is None
    assert time.process_time() - started < 30
