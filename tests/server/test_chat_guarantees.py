"""What this server cannot promise is refused by name."""

import pytest

from tests.server.test_chat_request import FN, refused


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"n": 2}, "n"),
        ({"modalities": ["text", "audio"]}, "modalities[1]"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format"),
        ({"logit_bias": {"5": 100}}, "logit_bias"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"verbosity": "low"}, "verbosity"),
        ({"verbosity": "high"}, "verbosity"),
        ({"store": True}, "store"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"moderation": {"model": "x"}}, "moderation"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"grammar": "root ::= x"}, "grammar"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"guided_json": {}}, "guided_json"),
        ({"guided_regex": "x"}, "guided_regex"),
        ({"guided_choice": ["a"]}, "guided_choice"),
        ({"guided_grammar": "x"}, "guided_grammar"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"mm_processor_kwargs": {"max_pixels": 5}}, "mm_processor_kwargs.max_pixels"),
        ({"chat_template_kwargs": {"foo": 1}}, "chat_template_kwargs.foo"),
        ({"tools": [FN], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [FN], "tool_choice": {"type": "function", "function": {"name": "look"}}}, "tool_choice"),
        ({"tools": [FN], "tool_choice": {"type": "custom", "custom": {"name": "look"}}}, "tool_choice"),
        (
            {"tools": [FN], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": []}},
            "tool_choice.mode",
        ),
        ({"tools": [FN], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "strict": True}}]},
            "tools[0].function.strict",
        ),
    ],
    ids=repr,
)
def test_missing_guarantees_are_named(server, members, param):
    error = refused(server, **members)
    assert (error["code"], error["param"]) == ("unsupported_feature", param)
    assert param in error["message"]
