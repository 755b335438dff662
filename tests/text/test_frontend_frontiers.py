"""Where in a prompt a later request may branch off: exact prefixes of it, each for a reason."""

from pathlib import Path

import pytest

from ninfer_jax.text.conversation import HistoryToolCall, TextPart, Turn
from ninfer_jax.text.frontend import Frontend
from ninfer_jax.types import CacheFrontier
from tests.text.fakes import CHATML, THINKING, conversation, frontend, resources, tool, turn


def test_frontiers_are_exact_prefixes() -> None:
    front = frontend()
    talk = conversation(turn("system", "Be nice."), turn("user", "Hi"), tools=(tool("ping"),))
    prepared = front.prepare(talk)
    ends = {
        f.kind: front.tokenizer.decode(prepared.prompt.token_ids[: f.position])
        for f in prepared.prompt.frontiers
    }
    assert ends["system_end"].endswith("Be nice.\n")
    assert ends["tools_end"].endswith("</tool_call>\n\n")
    assert ends["response_replay"].endswith("Hi\n")


def test_a_place_that_no_other_request_shares_is_no_frontier() -> None:
    counting = frontend("{{ messages | length }} messages\n" + CHATML)
    talk = conversation(
        turn("system", "Be nice."), turn("user", "Hi"), turn("assistant", "Ho"), turn("user", "And?")
    )
    assert {f.kind for f in counting.prepare(talk).prompt.frontiers} == {"response_replay", "implicit"}


def test_turn_closure_stays_at_the_last_query_of_a_tool_loop() -> None:
    front = frontend(THINKING)
    call = (HistoryToolCall("c", "ping", {}),)
    loop = (
        turn("user", "Hi"),
        turn("assistant", "", tool_calls=call),
        turn("tool", "pong", tool_call_id="c"),
    )
    prepared = front.prepare(conversation(*loop, preserve_thinking=False))
    (closure,) = (f for f in prepared.prompt.frontiers if f.kind == "turn_closure")
    assert front.tokenizer.decode(prepared.prompt.token_ids[: closure.position]) == "user\nHi\n"


@pytest.mark.parametrize(
    ("turns", "end"),
    [
        ((turn("system", "Be nice."), turn("user", "Hi")), "Hi"),
        ((turn("user", "Hi"), Turn("user", (TextPart("one"), TextPart("two")))), "onetwo"),
    ],
)
def test_the_implicit_frontier_is_the_end_of_the_content(turns: tuple[Turn, ...], end: str) -> None:
    front = frontend()
    prepared = front.prepare(conversation(*turns))
    (implicit,) = (f.position for f in prepared.prompt.frontiers if f.kind == "implicit")
    assert front.tokenizer.decode(prepared.prompt.token_ids[:implicit]).endswith(end)
    without = front.prepare(conversation(*turns, implicit_breakpoint=False))
    assert all(f.kind != "implicit" for f in without.prompt.frontiers)


def test_no_frontiers_are_looked_for_where_nobody_reads_them() -> None:
    front = Frontend.from_resources(resources(CHATML), max_context=1000, find_frontiers=False)
    talk = conversation(turn("system", "Be nice."), turn("user", "Hi"), tools=(tool("ping"),))
    assert front.prepare(talk).prompt.frontiers == ()
    assert front.prepare(talk).prompt.token_ids == frontend().prepare(talk).prompt.token_ids


def test_client_markers() -> None:
    front = frontend()
    parts = (TextPart("one  ", breakpoint=True), TextPart("two"))
    talk = conversation(Turn("user", parts), turn("assistant", "ok"), turn("user", "three"))
    markers = [f for f in front.prepare(talk).prompt.frontiers if f.kind == "client_marker"]
    assert markers == [CacheFrontier(1 + len("user\none"), "client_marker")]


def test_client_markers_in_every_place() -> None:
    """What a template shows of a turn depends on later turns, and a system turn alone renders nothing."""
    template = (Path(__file__).parent / "data" / "hybrid.jinja").read_text()
    front = frontend(template)
    marked = (TextPart("terse", breakpoint=True), TextPart(" please"))
    calls = tuple(HistoryToolCall(f"c{i}", f"f{i}", {}, breakpoint=True) for i in range(2))
    results = [Turn("tool", (TextPart(f"r{i}", breakpoint=i == 1),), tool_call_id=f"c{i}") for i in range(2)]
    talk = conversation(
        Turn("system", marked),
        turn("user", "go"),
        Turn("assistant", (), tool_calls=calls),
        *results,
        turn("user", "and?"),
    )
    prepared = front.prepare(talk)
    ends = [f.position for f in prepared.prompt.frontiers if f.kind == "client_marker"]
    heads = [
        front.tokenizer.decode(prepared.prompt.token_ids[:end], skip_special=False).rpartition("\n")[2]
        for end in ends
    ]
    assert heads == ["terse", "</tool_call>", "</tool_call>", "r1"]
