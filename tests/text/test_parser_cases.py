"""Every case of an outside collection of parser and stream cases, with its fuzz instructions.

Set ``NINFER_PARSER_CASES`` to the JSON file; the project never needs it.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ninfer_jax.text.conversation import Tool
from ninfer_jax.text.output_parser import ParsedOutput, StreamParser, ToolParsing, fold
from ninfer_jax.text.session import SessionOptions, TextOutputSession
from ninfer_jax.types import Delta, FinishReason, TextDelta
from tests.text.fakes import decode_pieces

PATH = os.environ.get("NINFER_PARSER_CASES")
FILE: dict[str, Any] = json.loads(Path(PATH).read_text()) if PATH else {"cases": [], "stream": [], "fuzz": {}}
pytestmark = pytest.mark.skipif(PATH is None, reason="NINFER_PARSER_CASES names no file")

STRIPS: dict[str, Callable[[str], str]] = {"exact": str, "strip": str.strip, "lstrip": str.lstrip}


def parser(case: dict[str, Any]) -> StreamParser:
    tools = [Tool(tool["function"]["name"], tool) for tool in case["tools"]]
    parsing = ToolParsing(tools, tolerant=case["tolerant"], max_name=case["max_name"])
    return StreamParser(parsing, reasoning=case["reasoning_open"])


def play(case: dict[str, Any], pieces: list[str]) -> ParsedOutput:
    machine = parser(case)
    deltas = [delta for piece in pieces for delta in machine.feed(piece)]
    return fold(deltas + machine.finish(), machine.diagnostics)


def passes(case: dict[str, Any], result: ParsedOutput) -> bool:
    return any(matches(case, result, expect) for expect in (case["expect"], *case.get("accept", ())))


def matches(case: dict[str, Any], result: ParsedOutput, expect: dict[str, Any]) -> bool:
    compare = case.get("compare", {})
    for name in ("content", "reasoning"):
        normal = STRIPS[compare.get(name, "exact")]
        if normal(getattr(result, name)) != normal(expect.get(name, "")):
            return False
    calls = [(call.name, json.loads(call.arguments)) for call in result.tool_calls]
    wanted = [(call["name"], call["arguments"]) for call in expect["calls"]]
    if json.dumps(numbers(calls), sort_keys=True) != json.dumps(numbers(wanted), sort_keys=True):
        return False
    order = expect.get("argument_order")
    if order is not None and order != [list(arguments) for _, arguments in calls]:
        return False
    return result.fallback_reason == expect["fallback_reason"]


def numbers(value: Any) -> Any:
    """Numbers compare by value, booleans never equal numbers."""
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [numbers(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def splits(case: dict[str, Any]) -> Iterator[list[str]]:
    text, fuzz = case["text"], FILE["fuzz"]
    step = 7 if len(text) > 2000 else 1
    for at in range(0, len(text) + 1, step):
        yield [text[:at], text[at:]]
    data = text.encode()
    for at in range(0, len(data) + 1, step):
        yield decode_pieces([data[:at], data[at:]])
    yield decode_pieces([data[at : at + 1] for at in range(len(data))])
    for size in fuzz["fixed_sizes"]:
        yield [text[at : at + size] for at in range(0, len(text), size)]
    for seed in fuzz["random"]["seeds"]:
        if len(text) > fuzz["random"]["max_pieces"]:
            rng = random.Random(seed)
            cuts = sorted(rng.sample(range(1, len(text)), rng.randint(1, fuzz["random"]["max_pieces"] - 1)))
            yield [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    if "pieces" in case:
        yield case["pieces"]


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["id"])
def test_case(case: dict[str, Any]) -> None:
    whole = play(case, [case["text"]])
    assert passes(case, whole), whole
    for pieces in splits(case):
        assert play(case, pieces) == whole, pieces


@pytest.mark.parametrize("case", FILE["stream"], ids=lambda case: case["id"])
def test_stream(case: dict[str, Any]) -> None:
    pieces = [bytes.fromhex(piece) for piece in case["pieces"]]
    options = SessionOptions(
        eos_ids=frozenset(), stop=tuple(case["stops"]), reasoning=True if case.get("reasoning_open") else None
    )
    session = TextOutputSession(options, lambda token: pieces[token])
    deltas: list[Delta] = []
    expect = case["expect"]
    matched = False
    for token, allowed in zip(range(len(pieces)), expect["emitted_max"], strict=False):
        preview = session.preview([token])
        deltas += session.commit([token])
        assert sum(len(delta.text) for delta in deltas if isinstance(delta, TextDelta)) <= allowed
        matched = preview.finish is FinishReason.STOP_STRING
        if matched:
            break
    deltas += session.finish(FinishReason.STOP_STRING if matched else FinishReason.OUTPUT_LIMIT)
    text = {
        channel: "".join(d.text for d in deltas if isinstance(d, TextDelta) and d.channel == channel)
        for channel in ("reasoning", "content")
    }
    assert session.summary().stop_string == expect["stop_matched"]
    assert text["content"] == expect.get("text", expect.get("content"))
    assert text["reasoning"] == expect.get("reasoning", "")


def test_time_is_linear() -> None:
    case = next(case for case in FILE["cases"] if case["id"] == "call.single")
    for unit in ("<", "<tool_call>", "<parameter="):
        text = unit * (200_000 // len(unit))
        started = time.process_time()
        play(case, [text])
        assert time.process_time() - started < 1
