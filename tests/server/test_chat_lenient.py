"""``--lenient-api`` on Chat: hints are dropped and logged, guarantees are still refused."""

import pytest

from tests.server.scripted import engine_for, hybrid, what_ran
from tests.server.test_chat_basics import chat, user
from tests.server.test_chat_request import FN, refused

HINTS = [
    ({"verbosity": "low"}, {}, "verbosity"),
    ({"store": True}, {}, "store"),
    ({"tools": [FN], "parallel_tool_calls": False}, {"tools": [FN]}, "parallel_tool_calls"),
    ({"tools": [{"type": "web_search"}, FN]}, {"tools": [FN]}, "tools[0].type"),
    ({"chat_template_kwargs": {"foo": 1}}, {}, "chat_template_kwargs"),
    ({"reasoning_effort": "max"}, {}, "reasoning_effort"),
    ({"messages": [{**user()[0], "name": "bob"}]}, {}, "messages[0].name"),
]


@pytest.mark.parametrize(("members", "left", "logged"), HINTS, ids=repr)
def test_lenient_api_drops_hints(start, caplog, members, left, logged):
    """The request runs as if the hint were not there, and the log says which was dropped."""
    caplog.set_level("INFO", "ninfer_jax")
    server = start(engine_for("x"), hybrid(), lenient_api=True)
    chat(server, max_tokens=1, **members)
    ran = what_ran(server)
    assert [r.getMessage().partition(": ")[2] for r in caplog.records] == [f"ignored {logged}"]
    chat(server, max_tokens=1, **left)
    assert what_ran(server) == ran


def test_lenient_api_takes_strict_tools_as_others(start):
    function = {"name": "a", "strict": True, "parameters": {"type": "object"}}
    server = start(engine_for("x"), hybrid(), lenient_api=True)
    assert chat(server, max_tokens=1, tools=[{"type": "function", "function": function}])


@pytest.mark.parametrize(
    "members",
    [
        {"response_format": {"type": "json_object"}},
        {"guided_json": {}},
        {"n": 2},
        {"logprobs": True},
        {"tools": [FN], "tool_choice": "required"},
        {"tools": [{"type": "custom", "custom": {"name": "x"}}]},
        {"temperature": 3},
    ],
    ids=repr,
)
def test_lenient_api_keeps_refusing_guarantees(start, members):
    engine = engine_for("x")
    assert refused(start(engine, hybrid(), lenient_api=True), **members)["param"]
    assert engine.requests == []
