"""The members of a Chat request, one by one: what is fine, what is refused, and which name is blamed."""

import pytest

from tests.server.scripted import what_ran
from tests.server.test_chat_basics import CHAT, chat, user

FN = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def refused(server, **members):
    answer = server.http.post(CHAT, json={"messages": user(), "max_tokens": 1, **members})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    return error


NULLABLE = [
    "model", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty",
    "frequency_penalty", "n", "logit_bias", "logprobs", "top_logprobs", "tools", "tool_choice",
    "response_format", "stream", "stream_options", "user", "max_completion_tokens", "modalities",
    "audio", "functions", "function_call", "reasoning_effort", "enable_thinking", "preserve_thinking",
    "chat_template_kwargs", "parallel_tool_calls", "verbosity", "store", "web_search_options",
    "moderation", "prediction", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "grammar", "structured_outputs", "guided_json", "guided_regex",
    "guided_choice", "guided_grammar", "repetition_penalty", "mm_processor_kwargs", "timings_per_token",
    "return_progress",
]  # fmt: skip


@pytest.mark.parametrize("name", NULLABLE)
def test_null_is_absent(server, name):
    chat(server, max_tokens=1)
    without = what_ran(server)
    chat(server, max_tokens=1, **{name: None})
    assert what_ran(server) == without


@pytest.mark.parametrize(
    "members",
    [
        {"temperature": 0},
        {"temperature": 2},
        {"top_p": 0},
        {"top_p": 1.0},
        {"top_k": 0},
        {"top_k": 20},
        {"min_p": 1},
        {"presence_penalty": -2},
        {"frequency_penalty": 2.0},
        {"seed": -1},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
        {"stop": "x"},
        {"stop": []},
        {"stop": ["a", "b", "c", "d"]},
        {"n": 1},
        {"modalities": ["text"]},
        {"modalities": ["text"], "audio": {"voice": "alloy", "format": "wav"}},
        {"response_format": {"type": "text"}},
        {"logit_bias": {"5": 0, "7": 0.0}},
        {"logit_bias": {}},
        {"logprobs": False, "top_logprobs": 0},
        {"verbosity": "medium"},
        {"functions": [], "function_call": "none"},
        {"function_call": "auto"},
        {"prediction": {"type": "content", "content": "x"}},
        {"store": False},
        {"metadata": {"a": "b"}},
        {"user": "u", "safety_identifier": "s", "service_tier": "flex"},
        {"prompt_cache_key": "k"},
        {"prompt_cache_retention": "24h"},
        {"prompt_cache_retention": "in_memory"},
        {"prompt_cache_options": {"mode": "implicit", "ttl": "30m"}},
        {"prompt_cache_options": {"mode": "explicit"}},
        {"prompt_cache_options": {}},
        {"future_member": {"deep": [1, 2]}},
        {"repetition_penalty": 1},
        {"repetition_penalty": 1.0},
        {"mm_processor_kwargs": {}},
        {"mm_processor_kwargs": {"max_pixels": None}},
        {"chat_template_kwargs": {"foo": None, "enable_thinking": False}},
        {"stream_options": {"include_usage": True}},
        {"tools": []},
        {"tools": [FN]},
        {"tools": [FN], "tool_choice": "auto", "parallel_tool_calls": True},
        {"tools": [FN], "tool_choice": "none", "parallel_tool_calls": False},
        {"parallel_tool_calls": False},
        {"ignore_eos": True},
    ],
    ids=repr,
)
def test_accepted(server, members):
    assert chat(server, max_tokens=1, **members)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize(
    "members",
    [
        {"n": 1, "modalities": ["text"], "audio": {"voice": "alloy", "format": "wav"}},
        {"response_format": {"type": "text"}, "logit_bias": {"5": 0}, "logprobs": False, "top_logprobs": 0},
        {"verbosity": "medium", "functions": [], "function_call": "none", "store": False, "tools": []},
        {"prediction": {"type": "content", "content": "x"}, "metadata": {"a": "b"}},
        {"user": "u", "safety_identifier": "s", "service_tier": "flex", "prompt_cache_key": "k"},
        {"prompt_cache_retention": "24h", "prompt_cache_options": {"mode": "explicit"}},
        {"future_member": {"deep": [1, 2]}, "repetition_penalty": 1, "mm_processor_kwargs": {}},
        {"parallel_tool_calls": False, "stream_options": {"include_usage": True}},
    ],
    ids=repr,
)
def test_neutral_members_change_nothing_that_runs(server, members):
    chat(server, max_tokens=1)
    without = what_ran(server)
    chat(server, max_tokens=1, **members)
    assert what_ran(server) == without


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": 21}, "top_k"),
        ({"top_k": 1.0}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": []}, "frequency_penalty"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"seed": "7"}, "seed"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a", 5]}, "stop"),
        ({"stop": {"a": 1}}, "stop"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": "5"}, "max_completion_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"timings_per_token": "x"}, "timings_per_token"),
        ({"return_progress": 1}, "return_progress"),
        ({"n": 0}, "n"),
        ({"logit_bias": {"5": "x"}}, "logit_bias.5"),
        ({"function_call": 5}, "function_call"),
        ({"verbosity": "loud"}, "verbosity"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {}}, "response_format.type"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"enable_thinking": "no"}, "enable_thinking"),
        ({"chat_template_kwargs": {"enable_thinking": 1}}, "chat_template_kwargs.enable_thinking"),
        ({"preserve_thinking": "yes"}, "preserve_thinking"),
        ({"reasoning_effort": "ultra"}, "reasoning_effort"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"prompt_cache_key": 5}, "prompt_cache_key"),
        ({"prompt_cache_retention": "forever"}, "prompt_cache_retention"),
        ({"prompt_cache_options": "implicit"}, "prompt_cache_options"),
        ({"prompt_cache_options": {"mode": "sometimes"}}, "prompt_cache_options.mode"),
        ({"prompt_cache_options": {"ttl": "soon"}}, "prompt_cache_options.ttl"),
        ({"repetition_penalty": "1"}, "repetition_penalty"),
        ({"mm_processor_kwargs": 5}, "mm_processor_kwargs"),
        ({"tools": FN}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a" * 65}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "description": 5}}]},
            "tools[0].function.description",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [FN, FN]}, "tools"),
        ({"tools": [FN], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [FN], "tool_choice": 5}, "tool_choice"),
        ({"tools": [FN], "tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice"),
        (
            {
                "tools": [FN],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "no"}],
                },
            },
            "tool_choice.tools[0]",
        ),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
    ],
    ids=repr,
)
def test_malformed_values_name_their_member(server, members, param):
    error = refused(server, **members)
    assert (error["code"], error["param"]) == ("invalid_value", param)


@pytest.mark.parametrize("model", ["", None, 5, [], "fake-model"])
def test_no_name_means_the_loaded_model(server, model):
    assert chat(server, max_tokens=1, model=model)["model"] == "fake-model"


def test_another_model_is_404(server):
    answer = server.http.post(CHAT, json={"model": "gpt-9", "messages": user()})
    assert answer.status_code == 404
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("model_not_found", "model")


def test_zero_tokens_run_the_prompt_only(server):
    answer = chat(server, max_tokens=0)
    assert answer["usage"]["completion_tokens"] == 0
    assert answer["usage"]["prompt_tokens"] > 0
    choice = answer["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")


def test_the_current_limit_wins_over_the_legacy_one(server):
    assert chat(server, max_tokens=5, max_completion_tokens=2)["usage"]["completion_tokens"] == 2


def test_a_prompt_beyond_the_context_is_400_with_both_counts(server):
    error = refused(server, messages=user("x" * 5000))
    assert error["code"] == "context_length_exceeded"
    assert "4096" in error["message"]
    assert "50" in error["message"]


def test_media_without_vision_is_refused(server):
    video = {"type": "video_url", "video_url": {"url": "https://x/y.mp4"}}
    for part in (PNG, video, {"type": "image_url", "image_url": "https://x/y.png"}):
        assert refused(server, messages=user([part]))["code"] == "vision_disabled"
