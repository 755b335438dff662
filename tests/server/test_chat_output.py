"""Reasoning, tool calls and stops, scripted: the aggregate and the stream say the same."""

import json
from itertools import cycle

import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.scripted import engine_for, hybrid
from tests.server.test_chat_basics import chat, stream, user

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "metric": {"type": "boolean"},
            },
        },
    },
}
CALL = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n</function>\n</tool_call>"
)
ARGUMENTS = '{"city": "Paris", "days": 3, "metric": true}'


def both(server, **members):
    """The aggregate's choice, after checking that the stream adds up to it."""
    members = {"max_tokens": 2000, **members}
    whole = chat(server, **members)["choices"][0]
    folded = {"reasoning_content": "", "content": "", "tool_calls": {}}
    finish = None
    for chunk in stream(server, **members):
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for name in ("reasoning_content", "content"):
                folded[name] += delta.get(name) or ""
            assert delta.get("tool_calls") != []
            for piece in delta.get("tool_calls", ()):
                call = folded["tool_calls"].setdefault(piece["index"], {"name": "", "arguments": ""})
                assert ("id" in piece) == ("name" in piece["function"]) == (call["name"] == "")
                call["name"] += piece["function"].get("name", "")
                call["arguments"] += piece["function"]["arguments"]
            finish = choice["finish_reason"] or finish
    message = whole["message"]
    assert folded["reasoning_content"] == message.get("reasoning_content", "")
    assert folded["content"] == (message["content"] or "")
    calls = [call["function"] for call in message.get("tool_calls", ())]
    assert [folded["tool_calls"][index] for index in range(len(calls))] == calls
    assert len(folded["tool_calls"]) == len(calls)
    assert finish == whole["finish_reason"]
    return whole


def test_reasoning_is_apart_from_the_answer(start):
    server = start(engine_for("I think so.\n</think>\n\nYes."), hybrid())
    choice = both(server)
    assert choice["message"]["reasoning_content"].strip() == "I think so."
    assert choice["message"]["content"] == "Yes."
    usage = chat(server, max_tokens=2000)["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == len("I think so.\n")


def test_reasoning_cut_by_the_limit_is_all_reasoning(start):
    choice = both(start(engine_for("thinking and thinking"), hybrid()), max_tokens=8)
    assert choice["finish_reason"] == "length"
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("thinking", "")


def test_without_thinking_there_is_no_reasoning(start):
    choice = both(start(engine_for("Plain."), hybrid()), enable_thinking=False)
    assert "reasoning_content" not in choice["message"]
    assert choice["message"]["content"] == "Plain."


def test_tool_calls_are_typed_by_the_schema(start):
    server = start(engine_for(f"Hm.\n</think>\n\nLet me look.\n\n{CALL}"), hybrid())
    choice = both(server, tools=[WEATHER])
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me look."
    (call,) = choice["message"]["tool_calls"]
    assert (call["type"], call["function"]["name"]) == ("function", "get_weather")
    assert json.loads(call["function"]["arguments"]) == json.loads(ARGUMENTS)
    assert list(json.loads(call["function"]["arguments"])) == ["city", "days", "metric"]


def test_parallel_calls_have_distinct_ids_and_no_content(start):
    choice = both(start(engine_for(f"</think>\n\n{CALL}\n{CALL}\n{CALL}"), hybrid()), tools=[WEATHER])
    calls = choice["message"]["tool_calls"]
    assert len({call["id"] for call in calls}) == 3
    assert choice["message"]["content"] is None


@pytest.mark.parametrize("members", [{}, {"tools": [WEATHER], "tool_choice": "none"}])
def test_without_callable_tools_markup_stays_text(start, members):
    choice = both(start(engine_for(f"</think>\n\n{CALL}"), hybrid()), **members)
    assert choice["message"]["content"] == CALL
    assert choice["finish_reason"] == "stop"


def test_an_undeclared_tool_stays_text(start):
    other = CALL.replace("get_weather", "rm")
    choice = both(start(engine_for(f"</think>\n\n{other}"), hybrid()), tools=[WEATHER])
    assert choice["message"]["content"] == other
    assert "tool_calls" not in choice["message"]


def test_a_tool_outside_allowed_tools_stays_text(start):
    ping = {"type": "function", "function": {"name": "ping"}}
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "ping"}}]},
    }
    server = start(engine_for(f"</think>\n\n{CALL}"), hybrid())
    choice = both(server, tools=[WEATHER, ping], tool_choice=allowed)
    assert choice["message"]["content"] == CALL


def test_a_call_cut_by_the_limit_is_length(start):
    text = f"</think>\n\n{CALL}"
    choice = both(start(engine_for(text), hybrid()), tools=[WEATHER], max_tokens=40)
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("flag", [False, True])
def test_tolerant_tool_calls_recovers_a_call_without_its_wrapper_end(start, flag):
    text = f"</think>\n\n{CALL.removesuffix('</tool_call>')}"
    server = start(engine_for(text), hybrid(), tolerant_tool_calls=flag)
    choice = both(server, tools=[WEATHER])
    assert (choice["finish_reason"] == "tool_calls") is flag


def test_stop_strings_end_reasoning_too(start):
    server = start(engine_for("one two three</think>\n\nfour"), hybrid())
    choice = both(server, stop=["wo th"])
    assert (choice["message"]["reasoning_content"], choice["finish_reason"]) == ("one t", "stop")


def test_stop_strings_end_the_answer_and_are_not_shown(start):
    server = start(engine_for("</think>\n\nalpha beta gamma"), hybrid())
    choice = both(server, stop=["never", "beta"])
    assert (choice["message"]["content"], choice["finish_reason"]) == ("alpha ", "stop")


def test_ignore_eos_generates_up_to_the_limit(start):
    tokens = [*b"ok", 258]
    server = start(FakeEngine(lambda _: cycle(tokens)), hybrid())
    for ignore, count, reason in ((False, 3, "stop"), (True, 30, "length")):
        answer = chat(server, max_tokens=30, ignore_eos=ignore, enable_thinking=False)
        assert answer["usage"]["completion_tokens"] == count
        assert answer["choices"][0]["finish_reason"] == reason


def test_split_characters_never_break(start):
    choice = both(start(engine_for("</think>\n\n👩‍👩‍👧 你好"), hybrid()))
    assert choice["message"]["content"] == "👩‍👩‍👧 你好"


def test_a_cut_character_becomes_a_replacement(start):
    choice = both(start(engine_for("</think>\n\nab👩"), hybrid()), max_tokens=7)
    assert choice["message"]["content"].startswith("ab")
    assert choice["finish_reason"] == "length"


def test_a_thinking_budget_closes_thinking_and_counts(start):
    server = start(engine_for("x" * 50, end=False), hybrid(), default_thinking_budget=10)
    choice = both(server, max_tokens=200)
    assert choice["message"]["reasoning_content"].startswith("x" * 10)
    assert "limited time" in choice["message"]["reasoning_content"]
    assert "</think>" not in choice["message"]["content"]
    assert choice["message"]["content"].startswith("x")
    plain = both(server, enable_thinking=False, max_tokens=20)
    assert plain["message"]["content"] == "x" * 20


def test_a_natural_close_comes_before_the_budget(start):
    server = start(engine_for("short</think>\n\ndone"), hybrid(), default_thinking_budget=10)
    choice = both(server)
    assert choice["message"]["reasoning_content"] == "short"


def test_a_budget_that_cannot_close_is_refused(start):
    server = start(engine_for("x"), hybrid(), default_thinking_budget=10)
    answer = server.http.post("/v1/chat/completions", json={"messages": user(), "max_tokens": 12})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "thinking_budget_capacity_insufficient"
