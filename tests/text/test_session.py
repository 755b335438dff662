import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.text.output_parser import ToolParsing, fold
from ninfer_jax.text.session import SessionOptions, TextOutputSession, ThinkingBudget
from ninfer_jax.types import Delta, FinishReason, Preview, TextDelta, ToolCallDelta
from tests.text.fakes import tool

EOS, CONTROL, THINK_END = 256, 257, 260
CLOSE = tuple(b" enough\n</think>\n\n")


def spell(token: int) -> bytes:
    """A byte a token, and a few named ones."""
    return {EOS: b"<eos>", CONTROL: b"<ctl>", THINK_END: b"</think>"}.get(token) or bytes([token])


def session(**options: Any) -> TextOutputSession:
    options = {"eos_ids": frozenset({EOS}), "hidden_ids": frozenset({CONTROL})} | options
    return TextOutputSession(SessionOptions(**options), spell)


class Run:
    """Plays tokens as the engine would: preview, commit what is accepted, append what is forced."""

    def __init__(self, decoder: TextOutputSession, tokens: Sequence[int], *, round_size: int = 1) -> None:
        self.deltas: list[Delta] = []
        self.accepted: list[int] = []
        reason = FinishReason.OUTPUT_LIMIT
        left = list(tokens)
        while left:
            proposed, left = left[:round_size], left[round_size:]
            preview = decoder.preview(proposed)
            self._commit(decoder, proposed[: preview.accepted])
            if preview.finish:
                reason = preview.finish
                break
            if preview.force:  # what was proposed after the cut is sampled anew
                left = [*proposed[preview.accepted :], *left]
                assert decoder.preview(preview.force) == Preview(len(preview.force))
                self._commit(decoder, preview.force)
        self.reason = reason
        self.deltas += decoder.finish(reason)
        self.summary = decoder.summary()

    def _commit(self, decoder: TextOutputSession, tokens: Sequence[int]) -> None:
        self.accepted += tokens
        self.deltas += decoder.commit(tokens)

    def text(self, channel: str) -> str:
        return "".join(d.text for d in self.deltas if isinstance(d, TextDelta) and d.channel == channel)


def test_plain_text() -> None:
    run = Run(session(), "Grüße 👩‍🚀".encode())
    assert (run.text("content"), run.reason) == ("Grüße 👩‍🚀", FinishReason.OUTPUT_LIMIT)


def test_the_stop_token_is_accepted_and_never_shown() -> None:
    run = Run(session(), [*b"ab", EOS, *b"cd"])
    assert (run.text("content"), run.reason, run.accepted) == ("ab", FinishReason.STOP, [*b"ab", EOS])


def test_ignored_eos_is_hidden_and_generation_goes_on() -> None:
    run = Run(session(ignore_eos=True), [*b"ab", EOS, *b"cd"])
    assert (run.text("content"), run.reason) == ("abcd", FinishReason.OUTPUT_LIMIT)


def test_control_tokens_are_hidden() -> None:
    assert Run(session(), [*b"a", CONTROL, *b"b"]).text("content") == "ab"


def test_stop_string_ends_at_the_token_that_completes_it() -> None:
    run = Run(session(stop=("lo w",)), b"hello world", round_size=4)
    assert run.text("content") == "hel"
    assert bytes(run.accepted) == b"hello w"
    assert (run.reason, run.summary.stop_string) == (FinishReason.STOP_STRING, "lo w")


def test_text_held_for_a_stop_string_is_flushed_at_the_end() -> None:
    assert Run(session(stop=("abc!",)), b"xabc").text("content") == "xabc"


def test_stop_strings_search_reasoning_and_answer_apart() -> None:
    in_reasoning = Run(session(stop=("STOP",), reasoning=True), b"a STOP b</think>c")
    assert (in_reasoning.text("reasoning"), in_reasoning.text("content")) == ("a ", "")
    in_answer = Run(session(stop=("STOP",), reasoning=True), b"a</think>\n\nb STOP c")
    assert (in_answer.text("reasoning"), in_answer.text("content")) == ("a", "b ")
    across = Run(session(stop=("ab",), reasoning=True), b"a</think>b")
    assert (across.text("reasoning"), across.text("content")) == ("a", "b")


def test_stop_string_inside_a_tool_region_gives_the_region_back() -> None:
    text = b"<tool_call>\n<function=ping>\n</function>\n</tool_call>"
    run = Run(session(stop=("</function>",), parsing=ToolParsing([tool("ping")])), text)
    assert run.text("content") == "<tool_call>\n<function=ping>\n"
    assert run.summary.parse_fallback_reason == "malformed_structure"


def test_tool_calls_and_their_counters() -> None:
    parsing = ToolParsing([tool("set", {"on": {"type": "boolean"}, "n": {"type": "integer"}})])
    text = b"<tool_call><function=set><parameter=on>yes</parameter><parameter=n></parameter></function>"
    run = Run(session(parsing=parsing), [*text, *b"</tool_call>", EOS])
    assert [d for d in run.deltas if isinstance(d, ToolCallDelta)] == [
        ToolCallDelta(0, "set", '{"on": "yes"}')
    ]
    assert run.summary.tool_calls == 1
    diagnostics = run.summary.diagnostics
    assert diagnostics["tool_marker_seen"]
    assert (diagnostics["empty_arguments_omitted"], diagnostics["schema_mismatches"]) == (1, 1)


def test_a_call_cut_by_the_limit_is_text() -> None:
    run = Run(session(parsing=ToolParsing([tool("ping")])), b"Ok.\n<tool_call>\n<function=pi")
    assert run.text("content") == "Ok.\n<tool_call>\n<function=pi"
    assert run.summary.tool_calls == 0


def test_reasoning_tokens_end_before_the_closing_marker() -> None:
    run = Run(session(reasoning=True), [*b"abcde", THINK_END, *b"xy", EOS])
    assert (run.text("reasoning"), run.text("content")) == ("abcde", "xy")
    assert run.summary.reasoning_tokens == 5


def test_without_thinking_nothing_counts_as_reasoning() -> None:
    assert Run(session(reasoning=False), b"abc").summary.reasoning_tokens == 0
    assert Run(session(), b"abc").summary.reasoning_tokens == 0


def test_a_continued_answer_keeps_its_first_bytes() -> None:
    run = Run(session(reasoning=False, continues_text=True), b"\n<think>x")
    assert (run.text("content"), run.text("reasoning")) == ("\n<think>x", "")


class TestThinkingBudget:
    BUDGET = ThinkingBudget(4, CLOSE)

    @pytest.mark.parametrize("round_size", [1, 2, 3, 8])
    def test_forces_the_close_at_the_cap(self, round_size: int) -> None:
        run = Run(session(reasoning=True, budget=self.BUDGET), b"abcdefgh", round_size=round_size)
        assert bytes(run.accepted) == b"abcd enough\n</think>\n\nefgh"
        assert (run.text("reasoning"), run.text("content")) == ("abcd enough", "efgh")
        assert run.summary.diagnostics["thinking_budget_closes"] == 1

    @pytest.mark.parametrize("round_size", [1, 8])
    def test_a_natural_close_comes_first(self, round_size: int) -> None:
        run = Run(
            session(reasoning=True, budget=self.BUDGET), [*b"abc", THINK_END, *b"xyz"], round_size=round_size
        )
        assert (run.text("reasoning"), run.text("content")) == ("abc", "xyz")
        assert run.summary.diagnostics["thinking_budget_closes"] == 0

    def test_a_close_that_is_the_next_token_after_the_cap_comes_too_late(self) -> None:
        run = Run(session(reasoning=True, budget=self.BUDGET), [*b"abcd", THINK_END, *b"xyz"])
        assert run.summary.diagnostics["thinking_budget_closes"] == 1

    def test_stop_conditions_come_first(self) -> None:
        assert Run(session(reasoning=True, budget=self.BUDGET), [*b"abc", EOS]).reason is FinishReason.STOP
        stopped = Run(session(reasoning=True, budget=self.BUDGET, stop=("d",)), b"abcd")
        assert (stopped.reason, bytes(stopped.accepted)) == (FinishReason.STOP_STRING, b"abcd")

    def test_the_close_is_never_searched_for_stop_strings(self) -> None:
        run = Run(session(reasoning=True, budget=self.BUDGET, stop=("enough", "d enough")), b"abcdef")
        assert (run.text("reasoning"), run.text("content")) == ("abcd enough", "ef")

    def test_a_model_that_thinks_again_is_closed_again(self) -> None:
        run = Run(session(reasoning=True, budget=self.BUDGET), b"abcd<think>efg")
        assert run.text("reasoning") == "abcd enough enough"
        assert run.text("content") == "efg"

    def test_a_close_that_the_output_limit_forestalls_is_not_counted(self) -> None:
        decoder = session(reasoning=True, budget=self.BUDGET)
        assert decoder.preview(list(b"abcd")).force == CLOSE
        decoder.commit(list(b"abcd"))
        decoder.finish(FinishReason.OUTPUT_LIMIT)
        assert decoder.summary().diagnostics["thinking_budget_closes"] == 0

    def test_forced_tokens_count_as_reasoning(self) -> None:
        run = Run(session(reasoning=True, budget=self.BUDGET), b"abcdxy")
        assert run.summary.reasoning_tokens == 4 + len(b" enough\n</think")


OPTIONS = st.fixed_dictionaries(
    {
        "stop": st.sampled_from([(), ("ab",), ("b<", "a\n"), ("</think>",)]),
        "reasoning": st.sampled_from([None, False, True]),
        "budget": st.sampled_from([None, ThinkingBudget(3, CLOSE)]),
        "parsing": st.sampled_from(
            [ToolParsing(), ToolParsing([tool("a")]), ToolParsing([tool("a")], tolerant=True)]
        ),
    }
)
WORDS = st.sampled_from(
    ["a", "b", "\n", " ", "<", "é", "👩", "<think>", "</think>", "<tool_call>", "<function=a>", "</function>",
     "</tool_call>", "ab"]
)  # fmt: skip


@given(OPTIONS, st.lists(WORDS, max_size=12), st.integers(1, 5), st.booleans())
def test_rounds_of_any_size_give_the_same(options: Any, words: list[str], size: int, ends: bool) -> None:
    tokens = [*"".join(words).encode(), *([EOS] if ends else [])]
    one, many = Run(session(**options), tokens), Run(session(**options), tokens, round_size=size)
    assert one.accepted == many.accepted
    assert (one.reason, one.summary) == (many.reason, many.summary)
    diagnostics = ToolParsing([tool("a")]).parser().diagnostics
    assert fold(one.deltas, diagnostics) == fold(many.deltas, diagnostics)


@given(OPTIONS, st.lists(WORDS, max_size=8), st.binary(max_size=6))
def test_preview_changes_nothing(options: Any, words: list[str], other: bytes) -> None:
    tokens = list("".join(words).encode())
    plain, disturbed = session(**options), session(**options)
    for token in tokens:
        expected = plain.preview([token])
        disturbed.preview([*other, EOS])
        assert disturbed.preview([token]) == expected
        disturbed.preview(list(other))  # the last preview is not the committed one
        assert plain.commit([token]) == disturbed.commit([token])
        if expected.finish or expected.force:
            return
    assert plain.finish(FinishReason.OUTPUT_LIMIT) == disturbed.finish(FinishReason.OUTPUT_LIMIT)


def test_a_token_is_cheap() -> None:
    decoder = session(reasoning=True, stop=("never",))
    decoder.commit(list(b"x</think>"))
    started = time.process_time()
    for _ in range(500):
        for token in b"plain text":
            decoder.preview([token])
            decoder.commit([token])
    assert (time.process_time() - started) / 5000 < 40e-6
