"""The members of a Responses request, one by one: what is fine, what is refused, and which name is blamed."""

import pytest

from tests.server.responses import NAMESPACE, PING, RESPONSES, WEATHER, body, create, refused, stream

ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "ping"}]}

ACCEPTED = [
    {"instructions": "Be terse."},
    {"max_output_tokens": 0},
    {"store": False},
    {"temperature": 0},
    {"temperature": 2},
    {"top_p": 0},
    {"top_p": 1},
    {"metadata": {f"{number:02}" + "k" * 62: "v" * 512 for number in range(16)}},
    {"metadata": None},
    {"client_metadata": {"x-codex-window-id": "w", "any": [1, {"deep": None}]}},
    {"client_metadata": None},
    {"reasoning": {"effort": "none"}},
    {"reasoning": {"effort": "low", "summary": "auto"}},
    {"reasoning": {"generate_summary": "auto"}},
    {"reasoning": None},
    {"chat_template_kwargs": {"preserve_thinking": True}},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"preserve_thinking": False},
    {"preserve_thinking": True, "chat_template_kwargs": {"preserve_thinking": True}},
    {"text": {}},
    {"text": {"format": {"type": "text"}, "verbosity": "medium"}},
    {"tools": []},
    {"tools": [WEATHER, PING]},
    {"tools": [NAMESPACE, {"type": "namespace", "name": "empty", "tools": []}]},
    {"tools": [{**PING, "strict": False, "defer_loading": False, "allowed_callers": ["direct"]}]},
    {"tools": [{**PING, "parameters": None, "description": None}]},
    {"tools": [PING, {"type": "web_search"}]},
    {"tools": [PING, {"type": "web_search_preview_2025_03_11"}]},
    {"tools": [PING], "tool_choice": "auto"},
    {"tools": [PING], "tool_choice": "none"},
    {"tools": [PING, WEATHER], "tool_choice": ALLOWED},
    {"tools": [PING], "parallel_tool_calls": True},
    {"tools": [PING], "tool_choice": "none", "parallel_tool_calls": False},
    {"parallel_tool_calls": False},
    {"max_tool_calls": 0},
    {"truncation": "disabled"},
    {"top_logprobs": 0},
    {"service_tier": "auto"},
    {"service_tier": "default"},
    {"background": False},
    {"include": []},
    {"include": ["reasoning.encrypted_content"]},
    {"stream_options": {"include_obfuscation": True}},
    {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "safety_identifier": "s", "user": "u"},
    {"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}},
    {"conversation": None, "prompt": None, "context_management": None, "moderation": None},
]


@pytest.mark.parametrize("members", ACCEPTED, ids=str)
def test_accepted(server, members):
    response = create(server, **{"max_output_tokens": 1, **members})
    assert response["status"] == "incomplete"
    assert response["service_tier"] == "default"


def test_the_codex_set_of_members_is_accepted(server):
    response = create(
        server,
        max_output_tokens=1,
        store=False,
        tools=[WEATHER, NAMESPACE, {"type": "web_search", "external_web_access": True}],
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"summary": "auto"},
        include=["reasoning.encrypted_content"],
        prompt_cache_key="01a2",
        client_metadata={"x-codex-installation-id": "x"},
        text={"verbosity": "medium"},
    )
    assert [tool["type"] for tool in response["tools"]] == ["function", "namespace"]
    assert response["output"][0]["summary"] == []


NULLABLE = [
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
    "include",
    "background",
    "prompt_cache_options",
    "chat_template_kwargs",
    "preserve_thinking",
]


def test_null_is_absent(server):
    members = {**dict.fromkeys(NULLABLE), "max_output_tokens": 1}
    assert server.http.post(RESPONSES, json=body(**members)).status_code == 200


MALFORMED = [
    ({"model": ...}, "model"),
    ({"model": ""}, "model"),
    ({"model": 5}, "model"),
    ({"input": ...}, "input"),
    ({"input": []}, "input"),
    ({"input": ""}, "input"),
    ({"input": 5}, "input"),
    ({"input": {"role": "user"}}, "input"),
    ({"instructions": 5}, "instructions"),
    ({"previous_response_id": 5}, "previous_response_id"),
    ({"max_output_tokens": -1}, "max_output_tokens"),
    ({"max_output_tokens": "5"}, "max_output_tokens"),
    ({"max_output_tokens": 1.5}, "max_output_tokens"),
    ({"max_output_tokens": True}, "max_output_tokens"),
    ({"stream": "yes"}, "stream"),
    ({"store": 1}, "store"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"top_p": 1.1}, "top_p"),
    ({"metadata": {str(number): "v" for number in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: "v"}}, "metadata"),
    ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"metadata": {"k": 1}}, "metadata.k"),
    ({"metadata": []}, "metadata"),
    ({"client_metadata": "x"}, "client_metadata"),
    ({"reasoning": "low"}, "reasoning"),
    ({"reasoning": {"effort": "ultra"}}, "reasoning.effort"),
    ({"reasoning": {"effort": 3}}, "reasoning.effort"),
    ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
    ({"chat_template_kwargs": {"preserve_thinking": "yes"}}, "chat_template_kwargs.preserve_thinking"),
    ({"preserve_thinking": 1}, "preserve_thinking"),
    ({"text": []}, "text"),
    ({"text": {"format": "text"}}, "text.format"),
    ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
    ({"text": {"verbosity": "loud"}}, "text.verbosity"),
    ({"tools": {}}, "tools"),
    ({"tools": [5]}, "tools[0]"),
    ({"tools": [{"name": "x"}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "x" * 65}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "a.b"}]}, "tools[0].name"),
    ({"tools": [{**PING, "description": 5}]}, "tools[0].description"),
    ({"tools": [{**PING, "parameters": "x"}]}, "tools[0].parameters"),
    ({"tools": [{**PING, "strict": "no"}]}, "tools[0].strict"),
    ({"tools": [PING, PING]}, "tools[1].name"),
    ({"tools": [NAMESPACE, NAMESPACE]}, "tools[1].tools[0].name"),
    ({"tools": [{"type": "namespace"}]}, "tools[0].name"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [5]}]}, "tools[0].tools[0]"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": {}}]}, "tools[0].tools"),
    ({"tool_choice": "perhaps"}, "tool_choice"),
    ({"tool_choice": 5}, "tool_choice"),
    ({"tool_choice": {}}, "tool_choice.type"),
    ({"tools": [WEATHER], "tool_choice": ALLOWED}, "tool_choice.tools[0]"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "any"}}, "tool_choice.mode"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.mode"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"max_tool_calls": -1}, "max_tool_calls"),
    ({"truncation": "some"}, "truncation"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": -1}, "top_logprobs"),
    ({"service_tier": 1}, "service_tier"),
    ({"background": "no"}, "background"),
    ({"include": "all"}, "include"),
    ({"include": ["everything"]}, "include[0]"),
    ({"include": [{}]}, "include[0]"),
    ({"stream_options": 1}, "stream_options"),
    ({"stream_options": {"include_obfuscation": "no"}}, "stream_options.include_obfuscation"),
    ({"prompt_cache_key": 1}, "prompt_cache_key"),
    ({"prompt_cache_retention": "ever"}, "prompt_cache_retention"),
    ({"prompt_cache_options": {"mode": "magic"}}, "prompt_cache_options.mode"),
    ({"safety_identifier": 1}, "safety_identifier"),
    ({"user": 1}, "user"),
]


@pytest.mark.parametrize(("members", "field"), MALFORMED, ids=str)
def test_malformed_values_name_their_member(server, members, field):
    error = refused(server, **members)
    assert (error["code"], error["param"]) == ("invalid_value", field)
    assert field in error["message"]


def test_another_model_is_404(server):
    error = refused(server, status=404, model="other")
    assert (error["code"], error["param"]) == ("model_not_found", "model")


@pytest.mark.parametrize(
    "name", ["made_up", "max_tokens", "stop", "seed", "messages", "enable_thinking", "n"]
)
def test_unknown_members_are_named(server, name):
    error = refused(server, **{name: None})
    assert (error["code"], error["param"]) == ("unknown_parameter", name)


@pytest.mark.parametrize("effort", ["minimal", "high", "max"])
def test_efforts_the_template_lacks_are_refused(server, effort):
    error = refused(server, reasoning={"effort": effort})
    assert (error["code"], error["param"]) == ("reasoning_effort_not_supported", "reasoning.effort")
    assert "model_reasoning_effort" in error["message"]
    assert "--lenient-api" in error["message"]


def test_contradictions_are_conflicts(server):
    both_places = {"preserve_thinking": False, "chat_template_kwargs": {"preserve_thinking": True}}
    assert refused(server, **both_places)["code"] == "conflicting_template_option"
    switch = {"reasoning": {"effort": "low"}, "chat_template_kwargs": {"enable_thinking": False}}
    assert refused(server, **switch)["code"] == "conflicting_template_option"


def test_a_prompt_beyond_the_context_is_400_with_both_counts(server):
    error = refused(server, input="x" * 5000)
    assert error["code"] == "context_length_exceeded"
    assert "4096" in error["message"]


def test_created_events_repeat_the_request(server):
    events = stream(server, max_output_tokens=..., store=False, metadata={"a": "b"}, tools=[PING])
    first = events[0]["response"]
    assert first["max_output_tokens"] is None
    assert (first["store"], first["metadata"], first["status"]) == (False, {"a": "b"}, "in_progress")
    assert [tool["name"] for tool in first["tools"]] == ["ping"]
