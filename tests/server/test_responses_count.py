"""``/v1/responses/input_tokens`` counts the prompt that the same create request has."""

import pytest

from tests.server.responses import (
    NAMESPACE,
    PING,
    RESPONSES,
    WEATHER,
    body,
    call,
    create,
    message,
    reasoning,
    refused,
    result,
    user,
)
from tests.server.scripted import engine_for, hybrid

COUNT = f"{RESPONSES}/input_tokens"
PARTS = [
    {"type": "input_text", "text": "a"},
    {"type": "input_text", "text": "b", "prompt_cache_breakpoint": None},
]
ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "ping"}]}
LOOP = [user("w?"), call(), result(), user("and?")]

SHAPES = [
    {},
    {"input": "Tell me a thing."},
    {"input": "👩‍👩‍👧 你好"},
    {"input": [user("a"), user("b")]},
    {"input": [{"role": "user", "content": "no type"}]},
    {"input": [user(PARTS)]},
    {"input": [message("system", "s"), user("u")]},
    {"input": [message("developer", "d"), message("developer", "e"), user("u")]},
    {"input": [user("u"), message("developer", "late"), user("v")]},
    {"input": [user("u"), message("assistant", "a"), user("v")]},
    {"input": [user("u"), message("assistant", [{"type": "refusal", "refusal": "no"}]), user("v")]},
    {"input": [user("u"), reasoning("r"), message("assistant", "a"), user("v")]},
    {"input": [user("u"), reasoning("r"), message("assistant", "a"), user("v")], "preserve_thinking": True},
    {"input": [user("u"), reasoning("r only"), user("v")], "preserve_thinking": True},
    {"input": LOOP},
    {"input": LOOP, "tools": [WEATHER]},
    {"input": [user("u"), call("a"), call("b"), result("b", "2"), result("a", "1")]},
    {"input": [user("u"), call(namespace="n"), result(output=PARTS[:1])], "tools": [NAMESPACE]},
    {"instructions": "Be terse."},
    {"instructions": "Be terse.", "tools": [WEATHER, NAMESPACE]},
    {"instructions": ""},
    {"tools": [WEATHER, PING]},
    {"tools": [WEATHER, PING], "tool_choice": "none"},
    {"tools": [WEATHER, PING], "tool_choice": ALLOWED},
    {"tools": [PING, {"type": "web_search"}]},
    {"reasoning": {"effort": "none"}},
    {"reasoning": {"effort": "low", "summary": "auto"}},
    {"reasoning": {"effort": "xhigh"}},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"text": {"format": {"type": "text"}}, "truncation": "disabled"},
    {"prompt_cache_options": {"mode": "explicit"}},
    {"temperature": 0.5, "store": False, "include": ["reasoning.encrypted_content"]},
]


@pytest.fixture(scope="module")
def script():
    return "A thought.</think>\n\nAn answer."


def counted(server, **members) -> int:
    answer = server.http.post(COUNT, json=body(**members))
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"object", "input_tokens"}
    assert answer.json()["object"] == "response.input_tokens"
    return answer.json()["input_tokens"]


@pytest.mark.parametrize("members", SHAPES, ids=lambda members: str(SHAPES.index(members)))
def test_the_count_is_the_usage_of_the_same_request(server, members):
    count = counted(server, **members)
    response = create(server, **members)
    assert count == response["usage"]["input_tokens"] > 0
    follow = {**members, "input": "Go on.", "previous_response_id": response["id"]}
    if response["store"]:
        assert counted(server, **follow) == create(server, **follow)["usage"]["input_tokens"] > count


def test_counting_runs_and_stores_nothing(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    counted(server)
    assert not engine.requests
    assert engine.stats()["reservations"] == 0


@pytest.mark.parametrize(
    ("members", "code", "field"),
    [
        ({"model": ...}, "invalid_value", "model"),
        ({"input": ...}, "invalid_value", "input"),
        ({"made_up": 1}, "unknown_parameter", "made_up"),
        ({"tools": [{**PING, "strict": True}]}, "unsupported_feature", "tools[0].strict"),
        ({"text": {"format": {"type": "json_object"}}}, "unsupported_feature", "text.format"),
        ({"truncation": "auto"}, "unsupported_feature", "truncation"),
        ({"previous_response_id": "resp_no"}, "previous_response_not_found", "previous_response_id"),
        ({"input": [user(), result()]}, "invalid_tool_history", "input[1].call_id"),
    ],
    ids=str,
)
def test_counting_refuses_what_creating_refuses(server, members, code, field):
    for path in (COUNT, RESPONSES):
        error = refused(server, path=path, **members)
        assert (error["code"], error["param"]) == (code, field)
