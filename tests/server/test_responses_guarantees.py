"""What this server cannot promise is refused by name; ``--lenient-api`` drops what is only a hint."""

import pytest

from tests.server.harness import LiveServer
from tests.server.responses import NAMESPACE, PING, create, refused
from tests.server.scripted import hybrid
from tests.server.test_responses_request import ALLOWED


@pytest.fixture(scope="module")
def lenient(engine):
    with LiveServer(engine, hybrid(), lenient_api=True) as live:
        yield live


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
