"""``cache_control``: at most four places, one ttl a place, and never a change of the prompt."""

import pytest

from tests.server.blocks import assistant, result, text, thought, tool_use
from tests.server.scripted import hybrid, what_ran
from tests.server.test_messages_basics import DISABLED, PING_TOOL, WEATHER, message, refused, user


def mark(ttl=None):
    control = {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}
    return {"cache_control": control}


def marked(count, **last):
    """A user message of so many marked blocks."""
    blocks = [text(f"p{index} ", **mark()) for index in range(count)]
    blocks[-1] |= last
    return [user(blocks)]


def unmarked(value):
    """The same JSON without any ``cache_control``."""
    if isinstance(value, dict):
        return {name: unmarked(item) for name, item in value.items() if name != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def script():
    return "ok"


@pytest.fixture
def frontiers(server, engine):
    """``frontiers(...)``: the prompt up to each boundary that a client's mark made, as text."""

    def run(messages, **members):
        message(server, messages=messages, **{"thinking": DISABLED, "max_tokens": 1, **members})
        prompt = engine.requests[-1].prompt
        ids = [front.position for front in prompt.frontiers if front.kind == "client_marker"]
        words = hybrid().tokenizer
        return [b"".join(map(words.token_bytes, prompt.token_ids[:end])).decode() for end in ids]

    return run


def test_messages_marks_on_every_kind_of_block_are_boundaries(frontiers):
    found = frontiers(
        [
            user([text("question", **mark()), text(" more")]),
            assistant(text("look"), tool_use("t1", city="Paris") | mark()),
            user([result("t1", "20C", **mark()), text("and?")]),
        ],
        tools=[WEATHER | mark(), PING_TOOL],
    )
    assert [words.rpartition("\n")[2] for words in found[1:]] == [
        "question",
        "</tool_call>",
        "20C",
    ]
    assert found[0].endswith("}}}}")
    assert "ping" not in found[0]


def test_messages_a_mark_on_the_system_text(frontiers):
    (found,) = frontiers([user()], system=[text("Be terse.", **mark("1h"))])
    assert found.endswith("Be terse.")


@pytest.mark.parametrize(
    "members",
    [
        {"messages": marked(4)},
        {"messages": marked(3), **mark()},
        {"messages": [user([text("a", **mark("5m")), text("b", **mark("1h"))])]},
        {"messages": [user([text("", **mark()), text("a")])]},
        {"messages": [user([text("", **mark()), *marked(4)[0]["content"]])]},
        {
            "messages": [user("a")],
            "system": [text("S", **mark())],
            "tools": [PING_TOOL | mark()],
            **mark("1h"),
        },
        {"messages": marked(4), **mark()},
        {"messages": marked(4, **mark("1h")), **mark("1h")},
        {"messages": [user(""), user([])], **mark()},
        {"messages": [user(), assistant(thought("t", **mark()), text("b")), user()]},
        {"messages": [user([result("t", [text("a", **mark())], **mark())]), *marked(3)], **mark()},
        {"messages": [user([text("a", cache_control=None)])], "cache_control": None},
    ],
    ids=str,
)
def test_messages_accepted_marks(server, members):
    """Marks are advice: the prompt is the one without them."""
    message(server, thinking=DISABLED, **members)
    marked_prompt = what_ran(server)
    message(server, thinking=DISABLED, **unmarked(members))
    assert what_ran(server) == marked_prompt


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"messages": [user([text("a", **mark("10m"))])]}, "messages[0].content[0].cache_control.ttl"),
        ({"messages": [user([text("a", cache_control={})])]}, "messages[0].content[0].cache_control.type"),
        (
            {"messages": [user([text("a", cache_control={"type": "forever"})])]},
            "messages[0].content[0].cache_control.type",
        ),
        ({"messages": [user([text("a", cache_control="x")])]}, "messages[0].content[0].cache_control"),
        ({"messages": [user([text("", **mark("2h"))])]}, "messages[0].content[0].cache_control.ttl"),
        ({"cache_control": {"type": "ephemeral", "ttl": 5}}, "cache_control.ttl"),
        ({"tools": [PING_TOOL | mark("x")]}, "tools[0].cache_control.ttl"),
        ({"messages": marked(5)}, "messages[0].content[4].cache_control"),
        ({"messages": marked(4), "system": [text("S", **mark())]}, "messages[0].content[3].cache_control"),
        ({"messages": [*marked(4), user("more")], **mark()}, "cache_control"),
        ({"messages": marked(1), **mark("1h")}, "cache_control.ttl"),
        ({"messages": marked(1, **mark("1h")), **mark("5m")}, "cache_control.ttl"),
        (
            {"messages": [user([result("t", [text("a", **mark("5m"))], **mark("1h"))])]},
            "messages[0].content[0].cache_control.ttl",
        ),
    ],
    ids=str,
)
def test_messages_wrong_marks_are_named(server, members, field):
    error = refused(server, **members)
    assert error["code"] == "invalid_value"
    assert error["message"].startswith(f"{field} ")


def test_messages_the_request_mark_is_on_the_last_cacheable_block(frontiers):
    (plain,) = frontiers([user([text("one"), text(" two")])], **mark())
    assert plain.endswith("one two")
    (merged,) = frontiers(marked(1), **mark())
    assert merged.endswith("p0")
    (before_empty,) = frontiers([user([text("one"), text("")])], **mark())
    assert before_empty.endswith("one")
    calls = [user("a"), assistant(tool_use()), user([result(content=[text("x"), text("y")])])]
    (tool_result,) = frontiers(calls, **mark())
    assert tool_result.endswith("xy")


def test_messages_marks_do_not_change_the_prompt(server, engine):
    history = [user("a"), assistant(tool_use()), user([result()])]
    with_marks = [user([text("a", **mark())]), assistant(tool_use() | mark()), user([result(**mark("1h"))])]
    for messages, more in ((history, {}), (with_marks, {}), (history, mark())):
        message(server, messages=messages, tools=[PING_TOOL | more], **more)
    assert len({request.prompt.token_ids for request in engine.requests[-3:]}) == 1
