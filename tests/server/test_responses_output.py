"""What a Response says: Items, states, usage, and that a stream says the same."""

import json
import time

import pytest

from ninfer_jax.errors import EngineError
from tests.server.fake_engine import FakeEngine
from tests.server.responses import (
    EVENT,
    NAMESPACE,
    PING,
    RESPONSES,
    WEATHER,
    body,
    both,
    call_text,
    create,
    events_of,
    fold,
    stream,
    text_of,
)
from tests.server.scripted import engine_for, hybrid

CALL = call_text(city="Paris", days=3, metric="True")
SIGN_OF_LIFE = "ninfer_jax.server.protocols.sign_of_life.SIGN_OF_LIFE_SECONDS"


def kinds(response):
    return [item["type"] for item in response["output"]]


def test_reasoning_message_and_calls_are_items_of_their_own(start):
    server = start(engine_for(f"Hm.\n</think>\n\nLet me look.\n\n{CALL}\n{CALL}"), hybrid())
    response = both(server, tools=[WEATHER])
    assert kinds(response) == ["reasoning", "message", "function_call", "function_call"]
    thought, said, first, second = response["output"]
    assert (thought["content"][0]["text"].strip(), thought["summary"]) == ("Hm.", [])
    assert said["content"] == [
        {"type": "output_text", "text": "Let me look.", "annotations": [], "logprobs": []}
    ]
    assert json.loads(first["arguments"]) == {"city": "Paris", "days": 3, "metric": True}
    assert list(json.loads(first["arguments"])) == ["city", "days", "metric"]
    assert first["id"].startswith("fc_")
    assert first["call_id"].startswith("call_")
    assert len({first["id"], second["id"], first["call_id"], second["call_id"]}) == 4
    assert {item["status"] for item in response["output"]} == {"completed"}


def test_envelope_of_a_completed_response(start):
    server = start(engine_for("</think>\n\nYes."), hybrid())
    response = create(server, metadata={"a": "b"}, instructions="Be brief.", user="u")
    assert response["id"].startswith("resp_")
    assert (response["object"], response["status"], response["model"]) == (
        "response",
        "completed",
        "fake-model",
    )
    assert response["completed_at"] >= response["created_at"]
    assert (response["error"], response["incomplete_details"]) == (None, None)
    assert (response["metadata"], response["instructions"]) == ({"a": "b"}, "Be brief.")
    assert (response["service_tier"], response["truncation"]) == ("default", "disabled")
    assert (response["store"], response["background"], response["parallel_tool_calls"]) == (True, False, True)
    assert (response["tools"], response["tool_choice"], response["top_logprobs"]) == ([], "auto", 0)
    assert "output_text" not in response
    assert text_of(response) == "Yes."


def test_usage_adds_up_and_counts_reasoning(start):
    server = start(engine_for("I think so.\n</think>\n\nYes."), hybrid())
    usage = create(server)["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens_details"] == {"reasoning_tokens": len("I think so.\n")}
    again = create(server)["usage"]
    assert again["input_tokens_details"]["cached_tokens"] == again["input_tokens"] - 1


def test_a_limit_makes_the_response_incomplete(start):
    server = start(engine_for("</think>\n\nA long answer."), hybrid())
    response = both(server, max_output_tokens=10)
    assert (response["status"], response["completed_at"]) == ("incomplete", None)
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][-1]["status"] == "incomplete"


def test_reasoning_cut_by_the_limit_has_no_empty_message(start):
    response = both(start(engine_for("thinking and thinking"), hybrid()), max_output_tokens=8)
    assert kinds(response) == ["reasoning"]
    assert response["output"][0]["content"][0]["text"] == "thinking"


def test_zero_tokens_run_the_prompt_only(start):
    response = both(start(engine_for("x"), hybrid()), max_output_tokens=0)
    assert (response["status"], response["output"], response["usage"]["output_tokens"]) == (
        "incomplete",
        [],
        0,
    )


def test_without_a_limit_the_answer_may_fill_the_context(start):
    engine = engine_for("words and words ", end=False)
    server = start(engine, hybrid())
    response = create(server, max_output_tokens=...)
    assert response["max_output_tokens"] is None
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["usage"]["total_tokens"] == engine.info.max_context


def test_an_explicit_default_bounds_an_answer_without_a_limit(start):
    server = start(engine_for("words and words ", end=False), hybrid(), default_max_tokens=7)
    response = create(server, max_output_tokens=...)
    assert (response["max_output_tokens"], response["usage"]["output_tokens"]) == (None, 7)


def test_a_call_cut_by_the_limit_stays_text(start):
    server = start(engine_for(f"</think>\n\n{CALL}"), hybrid())
    response = both(server, tools=[WEATHER], max_output_tokens=40)
    assert kinds(response) == ["message"]
    assert response["status"] == "incomplete"


def test_malformed_markup_loses_no_byte(start):
    markup = CALL.removesuffix("</tool_call>") + " and more"
    response = both(start(engine_for(f"</think>\n\n{markup}"), hybrid()), tools=[WEATHER])
    assert text_of(response) == markup


def test_answer_text_streams_before_the_held_call(start):
    server = start(engine_for(f"</think>\n\nLet me look.\n\n{CALL}"), hybrid())
    types = [event["type"] for event in stream(server, tools=[WEATHER])]
    assert types.index("response.output_text.delta") < types.index("response.function_call_arguments.delta")


@pytest.mark.parametrize("members", [{"tool_choice": "none"}, {"tools": [PING]}])
def test_what_is_not_callable_stays_text(start, members):
    server = start(engine_for(f"</think>\n\n{CALL}"), hybrid())
    response = both(server, **{"tools": [WEATHER], **members})
    assert kinds(response) == ["message"]
    assert text_of(response) == CALL


def test_allowed_tools_filter_what_may_be_called(start):
    server = start(engine_for(f"</think>\n\n{CALL}"), hybrid())
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "ping"}]}
    response = both(server, tools=[WEATHER, PING], tool_choice=choice)
    assert text_of(response) == CALL
    choice["tools"] = [{"type": "function", "name": "get_weather"}]
    assert kinds(both(server, tools=[WEATHER, PING], tool_choice=choice)) == ["function_call"]


def test_namespaces_keep_equal_names_apart(start):
    calls = "\n".join([call_text("ping"), call_text("mcp__weather.ping"), call_text("other.ping")])
    tools = [PING, NAMESPACE, {**NAMESPACE, "name": "other"}]
    response = both(start(engine_for(f"</think>\n\n{calls}"), hybrid()), tools=tools)
    named = [(item.get("namespace"), item["name"]) for item in response["output"]]
    assert named == [(None, "ping"), ("mcp__weather", "ping"), ("other", "ping")]
    assert [tool["type"] for tool in response["tools"]] == ["function", "namespace", "namespace"]


def test_allowed_tools_name_a_namespace(start):
    server = start(engine_for(f"</think>\n\n{call_text('mcp__weather.ping')}"), hybrid())
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "namespace": "mcp__weather", "name": "ping"}],
    }
    assert kinds(create(server, tools=[PING, NAMESPACE], tool_choice=choice)) == ["function_call"]
    choice["tools"] = [{"type": "function", "name": "ping"}]
    assert kinds(create(server, tools=[PING, NAMESPACE], tool_choice=choice)) == ["message"]


def test_tolerant_tool_calls_may_be_followed_by_text_and_continued(start):
    text = f"</think>\n\nOne.\n{CALL}\nTwo."
    server = start(engine_for(text, "</think>\n\nDone."), hybrid(), tolerant_tool_calls=True)
    first = create(server, tools=[WEATHER])
    assert kinds(first) == ["message", "function_call", "message"]
    answer = {
        "type": "function_call_output",
        "call_id": first["output"][1]["call_id"],
        "output": "warm",
    }
    assert text_of(create(server, previous_response_id=first["id"], input=[answer])) == "Done."


def test_encrypted_reasoning_comes_when_asked_for(start):
    server = start(engine_for("Hm.</think>\n\nYes."), hybrid())
    assert "encrypted_content" not in both(server)["output"][0]
    thought = both(server, include=["reasoning.encrypted_content"])["output"][0]
    assert thought["encrypted_content"]
    assert "Hm." not in thought["encrypted_content"]


def test_a_stream_ends_with_one_terminal_event_and_no_done(start):
    server = start(engine_for("Hm.</think>\n\nYes."), hybrid())
    answer = server.http.post(RESPONSES, json=body(stream=True))
    assert "[DONE]" not in answer.text
    events = events_of(answer)
    terminal = [event for event in events if event["type"] in ("response.completed", "response.incomplete")]
    assert terminal == events[-1:]


def test_text_is_streamed_as_it_comes(start):
    engine = engine_for("ab and c</think>\n\ncd 👩‍👩‍👧", round_seconds=0.01)
    events = stream(start(engine, hybrid()))
    assert fold(events)["output"][1]["content"][0]["text"] == "cd 👩‍👩‍👧"
    assert sum(event["type"] == "response.reasoning_text.delta" for event in events) > 1


def test_an_engine_failure_mid_stream_is_response_failed(start):
    engine = engine_for("endless ", end=False, round_seconds=0.002)
    server = start(engine, hybrid())
    with server.http.stream("POST", RESPONSES, json=body(stream=True, max_output_tokens=...)) as answer:
        lines = answer.iter_lines()
        for line in lines:
            if "reasoning_text.delta" in line:
                break
        engine.fail(EngineError("device lost"))
        rest = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    failed = rest[-1]
    EVENT.validate_python(failed)
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "device lost"}
    assert [event["type"] for event in rest].count("response.failed") == 1
    assert server.http.get(f"{RESPONSES}/{failed['response']['id']}").status_code == 404


def test_a_failure_after_a_heartbeat_is_a_whole_stream(start):
    engine = FakeEngine(max_concurrency=1, max_pending=4, pending_timeout=1.5, round_seconds=0.02)
    server = start(engine, hybrid(), heartbeat=0.1)
    with server.http.stream("POST", RESPONSES, json=body(stream=True, max_output_tokens=2000)) as busy:
        lines = busy.iter_lines()
        next(lines)
        late = server.http.post(RESPONSES, json=body(stream=True))
    assert late.status_code == 200
    assert late.text.startswith(": keep-alive")
    events = events_of(late)
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert events[-1]["response"]["error"]["code"] == "server_error"


def test_a_long_silence_is_broken_by_an_event(start, monkeypatch):
    monkeypatch.setattr(SIGN_OF_LIFE, 0.05)
    engine = engine_for("</think>\n\nYes.", prefill_chunk=8, prefill_seconds=0.03)
    events = stream(start(engine, hybrid()))
    assert [event["type"] for event in events].count("response.in_progress") > 1
    assert text_of(fold(events)) == "Yes."


def test_a_held_call_is_not_a_silence(start, monkeypatch):
    monkeypatch.setattr(SIGN_OF_LIFE, 0.02)
    engine = engine_for(f"</think>\n\n{call_text(city='x' * 100)}", round_seconds=0.005)
    events = stream(start(engine, hybrid()), tools=[WEATHER])
    added = [event["type"] for event in events].index("response.output_item.added")
    assert [event["type"] for event in events[:added]].count("response.in_progress") > 2
    assert json.loads(fold(events)["output"][0]["arguments"]) == {"city": "x" * 100}


def test_heartbeat_comments_run_while_prefilling(start):
    engine = engine_for("</think>\n\nYes.", prefill_chunk=4096, prefill_seconds=0.5)
    server = start(engine, hybrid(), heartbeat=0.1)
    began = time.monotonic()
    answer = server.http.post(RESPONSES, json=body(stream=True))
    assert answer.text.count(": keep-alive") >= 2
    assert time.monotonic() - began >= 0.5
    assert text_of(fold(events_of(answer))) == "Yes."
