"""The members of a Messages request, one by one: what is fine, what is refused, and which name is blamed."""

import pytest

from ninfer_jax.server.flag_table import DEFAULT_MAX_TOKENS
from tests.server.scripted import engine_for, hybrid, what_ran
from tests.server.test_chat_output import CALL
from tests.server.test_messages_basics import (
    COUNT,
    DISABLED,
    MESSAGES,
    PING_TOOL,
    WEATHER,
    anthropic_error,
    body,
    both,
    message,
    refused,
    user,
)

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


@pytest.fixture(scope="module")
def script():
    return "</think>\n\nok"


NULLABLE = [
    "system",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "stream",
    "tools",
    "tool_choice",
    "thinking",
    "metadata",
    "service_tier",
    "container",
    "mcp_servers",
    "output_config",
    "output_format",
    "cache_control",
    "context_management",
    "inference_geo",
    "preserve_thinking",
]


@pytest.mark.parametrize("name", NULLABLE)
def test_messages_null_is_absent(server, name):
    thinks = {} if name == "thinking" else {"thinking": DISABLED}
    message(server, **thinks)
    without = what_ran(server)
    message(server, **thinks, **{name: None})
    assert what_ran(server) == without


def test_messages_without_a_limit_take_the_default(server):
    message(server, thinking=DISABLED, max_tokens=None)
    assert what_ran(server)[2] == DEFAULT_MAX_TOKENS


@pytest.mark.parametrize(
    "members",
    [
        {"temperature": 0},
        {"temperature": 1.0, "top_p": 0.5, "top_k": 20},
        {"stop_sequences": []},
        {"stop_sequences": ["\n", "END", "a", "b", "c"]},
        {"metadata": {"user_id": "u"}, "service_tier": "auto", "inference_geo": "eu", "speed": "fast"},
        {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}},
        {"future_field": {"x": 1}, "betas": ["a"], "seed": "x"},
        {"mcp_servers": []},
        {"tools": []},
        {"tools": [{**PING_TOOL, "type": "custom", "strict": False, "defer_loading": False}]},
        {"tools": [{**PING_TOOL, "description": "d", "input_examples": [{}], "allowed_callers": ["direct"]}]},
        {"tools": [{**PING_TOOL, "name": "a" * 128, "eager_input_streaming": True}]},
        {"tools": [PING_TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": False}},
        {"tools": [PING_TOOL], "tool_choice": {"type": "none", "disable_parallel_tool_use": True}},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"thinking": {"type": "adaptive", "display": "summarized"}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1025 + 300},
        {"thinking": DISABLED, "output_config": {"effort": "low"}},
        {"output_config": {"effort": "xhigh", "task_budget": {"type": "tokens", "total": 9}}},
        {"preserve_thinking": True},
        {"model": "claude-haiku-4-5"},
        {"max_tokens": 10**12},
    ],
    ids=str,
)
def test_messages_accepted(server, members):
    assert message(server, **members)["stop_reason"] in ("end_turn", "max_tokens")


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"model": ""}, "model"),
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [user(5)]}, "messages[0].content"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "developer", "content": "x"}]}, "messages[0].role"),
        ({"messages": [user([{"text": "x"}])]}, "messages[0].content[0].type"),
        ({"messages": [user([{"type": "text"}])]}, "messages[0].content[0].text"),
        ({"messages": [user([{"type": "hologram"}])]}, "messages[0].content[0].type"),
        ({"system": 5}, "system"),
        ({"system": [PNG]}, "system[0].type"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 1.1}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_k": 1000}, "top_k"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"stop_sequences": ["a", 5]}, "stop_sequences[1]"),
        ({"stop_sequences": ["a"] * 65}, "stop_sequences"),
        ({"stream": "yes"}, "stream"),
        ({"thinking": "enabled"}, "thinking"),
        ({"thinking": {"type": "future"}}, "thinking.type"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"thinking": {"type": "enabled"}, "max_tokens": 4096}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1023}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1e3}}, "thinking.budget_tokens"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}, "max_tokens": 2048},
            "thinking.budget_tokens",
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 9000}, "max_tokens": None},
            "thinking.budget_tokens",
        ),
        ({"thinking": {"type": "adaptive", "display": "loud"}}, "thinking.display"),
        ({"output_config": "high"}, "output_config"),
        ({"output_config": {"effort": "ultra"}}, "output_config.effort"),
        ({"output_config": {"effort": 5}}, "output_config.effort"),
        ({"preserve_thinking": "yes"}, "preserve_thinking"),
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f", "input_schema": "x"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f", "input_schema": {"type": "array"}}]}, "tools[0].input_schema.type"),
        ({"tools": [{**PING_TOOL, "name": "a" * 129}]}, "tools[0].name"),
        ({"tools": [{**PING_TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [{**PING_TOOL, "input_examples": [5]}]}, "tools[0].input_examples[0]"),
        ({"tools": [PING_TOOL, PING_TOOL]}, "tools"),
        ({"tools": [PING_TOOL], "tool_choice": "auto"}, "tool_choice"),
        ({"tools": [PING_TOOL], "tool_choice": {"type": "x"}}, "tool_choice.type"),
        ({"tools": [PING_TOOL], "tool_choice": {"type": "tool", "name": "y"}}, "tool_choice.name"),
    ],
    ids=str,
)
def test_messages_malformed_values_name_their_member(server, members, field):
    error = refused(server, **members)
    assert error["code"] == "invalid_value"
    assert error["message"].startswith(f"{field} ")


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
@pytest.mark.parametrize(
    "content",
    [[PNG], [{"type": "tool_result", "tool_use_id": "t", "content": [PNG]}]],
    ids=["user", "tool_result"],
)
def test_messages_images_without_vision_are_refused_everywhere(server, path, content):
    assert refused(server, path, messages=[user(content)])["code"] == "vision_disabled"


def test_messages_sampling_reaches_the_engine(start):
    engine = engine_for("</think>\n\nok")
    message(start(engine, hybrid()), temperature=0.25, top_p=0.5, top_k=7)
    sampling = engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.25, 0.5, 7)


def test_messages_max_tokens_is_optional(start):
    engine = engine_for("</think>\n\nok")
    message(start(engine, hybrid(), default_max_tokens=77), max_tokens=None)
    assert engine.requests[-1].max_output_tokens == 77


def test_messages_the_label_is_echoed_and_selects_nothing(server):
    for label in ("claude-sonnet-4-5", "whatever/else", "fake-model"):
        assert both(server, model=label)["model"] == label


def test_messages_headers_and_query_of_real_clients_are_fine(server):
    headers = {
        "anthropic-version": "2031-01-01",
        "anthropic-beta": "claude-code-20250219,effort-2025-11-24,never-heard-of",
        "x-claude-code-session-id": "s",
    }
    answer = server.http.post(f"{MESSAGES}?beta=true", json=body(), headers=headers)
    assert answer.status_code == 200
    assert server.http.post(f"{COUNT}?beta=true", json=body(), headers=headers).status_code == 200


def test_messages_tools_are_typed_and_may_be_switched_off(start):
    server = start(engine_for(f"</think>\n\n{CALL}"), hybrid())
    off = both(server, tools=[WEATHER], tool_choice={"type": "none"}, max_tokens=1000)
    assert [block["type"] for block in off["content"]] == ["text"]
    assert off["stop_reason"] == "end_turn"
    undeclared = both(server, tools=[PING_TOOL], max_tokens=1000)
    assert [block["type"] for block in undeclared["content"]] == ["text"]


def test_messages_a_long_tool_name_can_be_called(start):
    name = "a" * 128
    call = f"<tool_call>\n<function={name}>\n</function>\n</tool_call>"
    server = start(engine_for(f"</think>\n\n{call}"), hybrid())
    answer = message(server, tools=[{**PING_TOOL, "name": name}], max_tokens=1000)
    assert answer["content"][0]["name"] == name


def test_messages_bodies_that_are_no_json_object(server):
    for raw in (b"", b"{", b"[1]", b"null", b'{"model": NaN}', b'{"a": 1, "a": 2}', b"\xff"):
        for path in (MESSAGES, COUNT):
            answer = server.http.post(path, content=raw)
            assert answer.status_code == 400
            assert anthropic_error(answer, "invalid_request_error")["code"] == "invalid_json"
