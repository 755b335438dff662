"""The committed corpus: what each output means, and that no cut of the stream changes it.

A case names a tool set of ``corpus/tools.json`` (null: no tools), and gives only what differs from:
strict, Qwen XML, a model that thinks when ``thinks`` or ``reasoning_open`` say so. ``expect`` lists
content, reasoning, calls as [name, arguments as spelled], and the fallback reason; defaults are empty.
"""

import json
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ninfer_jax.text.conversation import Tool
from ninfer_jax.text.output_parser import ParsedOutput, StreamParser, ToolParsing, fold, parse_output
from ninfer_jax.text.session import SessionOptions, TextOutputSession
from ninfer_jax.types import Delta, FinishReason, Preview, TextDelta, ToolCallDelta
from tests.text.fakes import tool

FOLDER = Path(__file__).parent / "corpus"
TOOLS = {
    name: [Tool(entry["function"]["name"], entry) for entry in tools]
    for name, tools in json.loads((FOLDER / "tools.json").read_text()).items()
}
CASES: list[dict[str, Any]] = [
    case
    for path in sorted(FOLDER.glob("*.json"))
    if path.name != "tools.json"
    for case in json.loads(path.read_text())
]
RANDOM_SPLITS = 200


def options(case: dict[str, Any]) -> dict[str, Any]:
    opened = case.get("reasoning_open", False)
    return {
        "tolerant": case.get("tolerant", False),
        "dialect": case.get("dialect", "qwen_xml"),
        "max_name": case.get("max_name", 64),
        "reasoning": opened if opened or case.get("thinks") else None,
    }


def tools_of(case: dict[str, Any]) -> list[Tool]:
    return TOOLS[case["tools"]] if case["tools"] else []


def play(case: dict[str, Any], pieces: list[str]) -> ParsedOutput:
    settings = options(case)
    reasoning = settings.pop("reasoning")
    parser = StreamParser(ToolParsing(tools_of(case), **settings), reasoning=reasoning)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    return fold(deltas + parser.finish(), parser.diagnostics)


def cuts(text: str) -> Iterator[list[str]]:
    for size in (1, 2, 3):
        yield [text[at : at + size] for at in range(0, len(text), size)]
    rng = random.Random(text)
    for _ in range(RANDOM_SPLITS if len(text) < 2000 else 5):
        count = rng.randint(0, min(12, len(text)))
        edges = [0, *sorted(rng.randint(0, len(text)) for _ in range(count)), len(text)]
        yield [text[start:end] for start, end in pairwise(edges)]


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 150
    assert len({case["id"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    expect = case["expect"]
    whole = parse_output(case["text"], tools_of(case), **options(case))
    assert whole.content == expect["content"]
    assert whole.reasoning == expect.get("reasoning", "")
    assert [[call.name, call.arguments] for call in whole.tool_calls] == expect.get("calls", [])
    assert whole.fallback_reason == expect.get("fallback_reason", "none")
    assert whole.diagnostics.calls == len(whole.tool_calls)
    for call in whole.tool_calls:
        if len(call.arguments) < 2000:  # deeper or longer than json.loads itself goes
            assert isinstance(json.loads(call.arguments), dict)
    for pieces in cuts(case["text"]):
        assert play(case, pieces) == whole, pieces


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_engine_s_decoder_says_the_same(case: dict[str, Any]) -> None:
    """What serves requests is ``TextOutputSession``; here each of its tokens is three characters."""
    settings = options(case)
    reasoning = settings.pop("reasoning")
    whole = parse_output(case["text"], tools_of(case), **options(case))
    pieces = [case["text"][at : at + 3].encode() for at in range(0, len(case["text"]), 3)]
    parsing = ToolParsing(tools_of(case), **settings)
    session = TextOutputSession(
        SessionOptions(eos_ids=frozenset(), reasoning=reasoning, parsing=parsing), pieces.__getitem__
    )
    deltas: list[Delta] = []
    for token_id in range(len(pieces)):
        assert session.preview([token_id]) == Preview(1)
        deltas += session.commit([token_id])
    deltas += session.finish(FinishReason.OUTPUT_LIMIT)
    assert fold(deltas, whole.diagnostics) == whole
    summary = session.summary()
    assert summary.parse_fallback_reason == whole.fallback_reason
    assert summary.tool_calls == len(whole.tool_calls)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_nothing_is_sent_that_is_not_final(case: dict[str, Any]) -> None:
    """At every moment the text sent is a prefix of the final text, and only white space and a possible
    marker are held back while no tool region is open."""
    settings = options(case)
    reasoning = settings.pop("reasoning")
    whole = parse_output(case["text"], tools_of(case), **options(case))
    parser = StreamParser(ToolParsing(tools_of(case), **settings), reasoning=reasoning)
    sent = {"reasoning": "", "content": ""}
    for char in case["text"]:
        for delta in parser.feed(char):
            if isinstance(delta, TextDelta):
                sent[delta.channel] += delta.text
            else:
                assert case.get("tolerant"), "a strict call is certain only at the end"
        assert whole.reasoning.startswith(sent["reasoning"])
        assert whole.content.startswith(sent["content"])


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["id"].startswith("plain.")], ids=lambda case: case["id"]
)
def test_plain_text_streams_at_once(case: dict[str, Any]) -> None:
    for end in range(len(case["text"]) + 1):
        seen = case["text"][:end]
        parser = StreamParser(ToolParsing(tools_of(case)), reasoning=None)
        sent = "".join(delta.text for delta in parser.feed(seen) if isinstance(delta, TextDelta))
        held = seen.removeprefix(sent).strip()
        assert held == "" or "<tool_call>".startswith(held)


@pytest.mark.parametrize("tolerant", [False, True])
@pytest.mark.parametrize(
    ("certain", "rest"),
    [
        (
            "<tool_call>\n<function=other>",
            "\n<parameter=a>\n</tool_call>\n<b>\n</parameter>\n</function>\n</tool_call>",
        ),
        ("<tool_call>\n<function=bad.name>", "<parameter=a>1</parameter></function></tool_call>"),
        (
            "<tool_call><function=f><parameter=a>1</parameter><parameter=a>",
            "2 <parameter=b>3</parameter></parameter></function>",
        ),
        ("<tool_call>\n<function=other>", "\n<parameter=a>\nnever closed <parameter=b>"),
    ],
)
def test_a_region_that_can_only_be_text_is_not_held(certain: str, rest: str, tolerant: bool) -> None:
    """An undeclared tool, an impossible name, a repeated parameter: all that follows is text at once."""
    parser = StreamParser(ToolParsing([tool("f")], tolerant=tolerant), reasoning=None)
    sent = "".join(d.text for d in parser.feed(certain) if isinstance(d, TextDelta))
    assert sent == certain
    for end, char in enumerate(rest, 1):
        sent += "".join(d.text for d in parser.feed(char) if isinstance(d, TextDelta))
        fed = certain + rest[:end]
        assert fed.startswith(sent)
        assert len(fed.removeprefix(sent).strip()) < len("</parameter>"), "no more than an undecided tag"
    assert sent == (certain + rest).rstrip()
    assert parser.finish() == []


def test_a_later_call_of_a_text_region_streams_too() -> None:
    """Strict: one function without identity gives the whole output back, so nothing waits for its end."""
    parser = StreamParser(ToolParsing([tool("f")]), reasoning=None)
    parser.feed("<tool_call><function=other></function></tool_call>")
    later = "<tool_call><function=f><parameter=a>"
    assert parser.feed(later) == [TextDelta("content", later)]


def test_tolerant_calls_come_before_the_end() -> None:
    parser = StreamParser(ToolParsing([tool("ping")], tolerant=True))
    assert parser.feed("<tool_call><function=ping></functio") == []
    assert parser.feed("n>") == [ToolCallDelta(0, "ping", "{}")]


@pytest.mark.parametrize("tolerant", [False, True])
@pytest.mark.parametrize("reasoning", [None, False, True])
@pytest.mark.parametrize(
    "unit", ["<", "<tool_call>", "<parameter=", " ", "\n", "<tool_call><function=f><parameter=a>"]
)
def test_time_is_linear(unit: str, reasoning: bool | None, tolerant: bool) -> None:
    """Four times the text takes four times the work, not sixteen; both are measured here, so it is no
    matter how fast the machine is."""

    def seconds(length: int, size: int) -> float:
        text = unit * (length // len(unit))
        taken = []
        for _ in range(2):
            parser = StreamParser(ToolParsing([tool("f")], tolerant=tolerant), reasoning=reasoning)
            started = time.process_time()
            for at in range(0, len(text), size):
                parser.feed(text[at : at + size])
            parser.finish()
            taken.append(time.process_time() - started)
        return min(taken)

    for size in (40, 100_000):
        assert seconds(100_000, size) < 10 * seconds(25_000, size) + 0.1
