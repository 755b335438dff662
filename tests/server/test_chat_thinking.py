"""Efforts, the ways to turn thinking off, and reasoning that is kept in the history."""

import pytest

from tests.server.scripted import engine_for, hybrid, prompt_text
from tests.server.test_chat_basics import CHAT, chat, user
from tests.server.test_chat_messages import say

THINKING = [
    ({}, "Think as long"),
    ({"reasoning_effort": "low"}, "Think briefly."),
    ({"reasoning_effort": "medium"}, "<|im_start|>assistant\n<think>\n"),
]


@pytest.mark.parametrize(("members", "expected"), THINKING)
def test_efforts_reach_the_template(start, members, expected):
    engine = engine_for("x")
    chat(start(engine, hybrid()), max_tokens=1, **members)
    assert expected in prompt_text(engine)


OFF = [
    {"reasoning_effort": "none"},
    {"enable_thinking": False},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": False}},
    {"enable_thinking": False, "reasoning_effort": "none"},
]


@pytest.mark.parametrize("members", OFF, ids=repr)
def test_every_way_to_turn_thinking_off_gives_one_prompt(start, members):
    engine = engine_for("x")
    chat(start(engine, hybrid()), max_tokens=1, **members)
    assert prompt_text(engine).endswith("<think>\n\n</think>\n\n")


def test_no_thinking_is_a_default_that_requests_override(start):
    engine = engine_for("x")
    server = start(engine, hybrid(), no_thinking=True)
    chat(server, max_tokens=1)
    assert prompt_text(engine).endswith("</think>\n\n")
    chat(server, max_tokens=1, reasoning_effort="low")
    assert prompt_text(engine).endswith("<think>\n")


CONFLICTS = [
    {"enable_thinking": True, "reasoning_effort": "none"},
    {"enable_thinking": False, "reasoning_effort": "low"},
    {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}},
    {"preserve_thinking": True, "chat_template_kwargs": {"preserve_thinking": False}},
]


@pytest.mark.parametrize("members", CONFLICTS, ids=repr)
def test_contradictions_are_conflicts(start, members):
    server = start(engine_for("x"), hybrid())
    answer = server.http.post(CHAT, json={"messages": user(), "max_tokens": 1, **members})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "conflicting_template_option"


@pytest.mark.parametrize("effort", ["minimal", "high", "max"])
def test_efforts_the_template_lacks_are_refused(start, effort):
    server = start(engine_for("x"), hybrid())
    answer = server.http.post(CHAT, json={"messages": user(), "reasoning_effort": effort})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "reasoning_effort_not_supported"


@pytest.mark.parametrize(
    ("flags", "members", "kept"),
    [
        ({}, {}, False),
        ({}, {"preserve_thinking": True}, True),
        ({}, {"chat_template_kwargs": {"preserve_thinking": True}}, True),
        ({"preserve_thinking": True}, {}, True),
        ({"preserve_thinking": True}, {"preserve_thinking": False}, False),
    ],
)
def test_preserve_thinking_decides_about_closed_turns(start, flags, members, kept):
    engine = engine_for("x")
    messages = [say("user", "1"), say("assistant", "2", reasoning_content="old thought"), say("user", "3")]
    chat(start(engine, hybrid(), **flags), max_tokens=1, messages=messages, **members)
    assert ("old thought" in prompt_text(engine)) is kept
