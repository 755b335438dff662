"""The members of a Responses request, one by one: what is fine, what is refused, and which name is blamed."""

import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.harness import LiveServer
from tests.server.responses import (
    NAMESPACE,
    PING,
    RESPONSES,
    WEATHER,
    body,
    create,
    refused,
    stream,
)
from tests.server.scripted import engine_for, hybrid, prompt_text


@pytest.fixture(scope="module")
def engine():
    made = FakeEngine(max_concurrency=4)
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(engine):
    with LiveServer(engine, hybrid()) as live:
        yield live


@pytest.fixture(scope="module")
def lenient(engine):
    with LiveServer(engine, hybrid(), lenient_api=True) as live:
        yield live


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


GUARANTEES = [
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ({"moderation": {"model": "m"}}, "moderation"),
    ({"background": True}, "background"),
    ({"text": {"format": {"type": "json_object"}}}, "text.format"),
    ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}, "text.format"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"include": ["message.output_text.logprobs"]}, "include[0]"),
    ({"tools": [{"type": "custom", "name": "apply_patch"}]}, "tools[0].type"),
    ({"tools": [{**NAMESPACE, "tools": [{"type": "custom", "name": "c"}]}]}, "tools[0].tools[0].type"),
    ({"tools": [PING], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [PING], "tool_choice": {"type": "function", "name": "ping"}}, "tool_choice"),
    ({"tools": [PING], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ({"tools": [PING], "tool_choice": {**ALLOWED, "mode": "required"}}, "tool_choice.mode"),
    ({"tool_choice": {**ALLOWED, "tools": [{"type": "mcp"}]}}, "tool_choice.tools[0].type"),
]

HINTS = [
    ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
    ({"reasoning": {"generate_summary": "concise"}}, "reasoning.generate_summary"),
    ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
    ({"chat_template_kwargs": {"magic": 1}}, "chat_template_kwargs.magic"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"truncation": "auto"}, "truncation"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"include": ["file_search_call.results"]}, "include[0]"),
    ({"tools": [PING], "parallel_tool_calls": False}, "parallel_tool_calls"),
    ({"tools": [{"type": "file_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "mcp", "server_url": "https://x"}]}, "tools[0].type"),
    ({"tools": [{"type": "code_interpreter"}]}, "tools[0].type"),
    ({"tools": [{**PING, "strict": True}]}, "tools[0].strict"),
    ({"tools": [{**PING, "defer_loading": True}]}, "tools[0].defer_loading"),
    ({"tools": [{**PING, "output_schema": {}}]}, "tools[0].output_schema"),
    ({"tools": [{**PING, "allowed_callers": ["programmatic"]}]}, "tools[0].allowed_callers"),
    ({"tools": [{**NAMESPACE, "tools": [{**PING, "strict": True}]}]}, "tools[0].tools[0].strict"),
]


@pytest.mark.parametrize(("members", "field"), GUARANTEES + HINTS, ids=str)
def test_missing_guarantees_are_named(server, members, field):
    error = refused(server, **members)
    assert (error["code"], error["param"]) == ("unsupported_feature", field)
    assert field in error["message"]


@pytest.mark.parametrize(("members", "field"), GUARANTEES, ids=str)
def test_lenient_api_keeps_guarantees_refused(lenient, members, field):
    assert refused(lenient, **members)["param"] == field


@pytest.mark.parametrize(("members", "field"), HINTS, ids=str)
def test_lenient_api_drops_hints(lenient, members, field):
    assert create(lenient, max_output_tokens=1, **members)


@pytest.mark.parametrize("effort", ["minimal", "high", "max"])
def test_efforts_the_template_lacks_are_refused(server, effort):
    error = refused(server, reasoning={"effort": effort})
    assert (error["code"], error["param"]) == ("reasoning_effort_not_supported", "reasoning.effort")
    assert "model_reasoning_effort" in error["message"]
    assert "--lenient-api" in error["message"]


def test_efforts_reach_the_template(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    prompts = set()
    for effort in ("none", "low", "medium", "xhigh"):
        response = create(server, reasoning={"effort": effort}, max_output_tokens=1)
        assert response["reasoning"] == {"effort": effort, "summary": None}
        prompts.add(prompt_text(engine))
    assert len(prompts) == 4


def test_contradictions_are_conflicts(server):
    both_places = {"preserve_thinking": False, "chat_template_kwargs": {"preserve_thinking": True}}
    assert refused(server, **both_places)["code"] == "conflicting_template_option"
    switch = {"reasoning": {"effort": "low"}, "chat_template_kwargs": {"enable_thinking": False}}
    assert refused(server, **switch)["code"] == "conflicting_template_option"


def test_a_prompt_beyond_the_context_is_400_with_both_counts(server):
    error = refused(server, input="x" * 5000)
    assert error["code"] == "context_length_exceeded"
    assert "4096" in error["message"]


def test_sampling_members_reach_the_engine(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    response = create(server, temperature=0.25, top_p=0.5, max_output_tokens=1)
    assert (response["temperature"], response["top_p"]) == (0.25, 0.5)
    assert (engine.requests[-1].sampling.temperature, engine.requests[-1].sampling.top_p) == (0.25, 0.5)


def test_tool_schemas_reach_the_prompt_as_they_came(start):
    engine = engine_for("x")
    raw = (
        b'{"model": "fake-model", "input": "hi", "max_output_tokens": 1, "tools": [{"type": "function",'
        b' "name": "look", "parameters": {"type": "object", "properties": {"z": {"minimum": 1.50},'
        b' "a": {"maximum": 1e2}}}, "description": "Look.", "strict": false}]}'
    )
    answer = start(engine, hybrid()).http.post(RESPONSES, content=raw)
    assert answer.status_code == 200
    assert '"z": {"minimum": 1.50}, "a": {"maximum": 1e2}' in prompt_text(engine)
    assert b'"minimum":1.50' in answer.content


def test_namespace_members_have_their_own_names_in_the_prompt(start):
    engine = engine_for("x")
    create(start(engine, hybrid()), tools=[PING, NAMESPACE], max_output_tokens=1)
    prompt = prompt_text(engine)
    assert '"name": "ping"' in prompt
    assert '"name": "mcp__weather.ping"' in prompt
    assert "Weather service" in prompt


def test_tools_that_nobody_runs_are_not_shown_to_the_model(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    create(server, tools=[{"type": "web_search"}], max_output_tokens=1)
    create(server, max_output_tokens=1)
    assert prompt_text(engine, -1) == prompt_text(engine, -2)


def test_cache_hints_do_not_change_the_prompt(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    marked = {"type": "input_text", "text": "hi", "prompt_cache_breakpoint": {"mode": "explicit"}}
    create(server, input=[{"role": "user", "content": [marked]}], max_output_tokens=1)
    create(server, input="hi", prompt_cache_key="k", max_output_tokens=1)
    assert prompt_text(engine, -1) == prompt_text(engine, -2)
    kinds = [frontier.kind for frontier in engine.requests[0].prompt.frontiers]
    assert "client_marker" in kinds


def test_created_events_repeat_the_request(server):
    events = stream(server, max_output_tokens=..., store=False, metadata={"a": "b"}, tools=[PING])
    first = events[0]["response"]
    assert first["max_output_tokens"] is None
    assert (first["store"], first["metadata"], first["status"]) == (False, {"a": "b"}, "in_progress")
    assert [tool["name"] for tool in first["tools"]] == ["ping"]
