"""Anthropic Messages over real HTTP: one message, one stream, and that they are the same answer."""

import json

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.server.scripted import engine_for, hybrid
from tests.server.test_chat_output import CALL

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
WEATHER = {
    "name": "get_weather",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "metric": {"type": "boolean"},
        },
    },
}
PING_TOOL = {"name": "ping", "input_schema": {"type": "object"}}
PING_CALL = "<tool_call>\n<function=ping>\n</function>\n</tool_call>"
DISABLED = {"type": "disabled"}

_EVENT = TypeAdapter(RawMessageStreamEvent)
_DELTAS = {
    "text": {"text_delta": "text"},
    "thinking": {"thinking_delta": "thinking", "signature_delta": "signature"},
    "tool_use": {"input_json_delta": "partial_json"},
}


def user(content="hello"):
    return {"role": "user", "content": content}


def body(**members):
    return {"model": "any/label", "max_tokens": 64, "messages": [user()], **members}


def message(server, **members):
    """One message, in the installed package's own type."""
    answer = server.http.post(MESSAGES, json=body(**members))
    assert answer.status_code == 200, answer.text
    Message.model_validate_json(answer.text, strict=True)
    return answer.json()


def events(server, **members):
    """The events of a stream that ended in form, pings left out, each in the installed package's type."""
    with server.http.stream("POST", MESSAGES, json=body(**members, stream=True)) as answer:
        text = answer.read().decode()
    assert answer.status_code == 200, text
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "[DONE]" not in text
    found = []
    for frame in filter(None, text.split("\n\n")):
        if frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        if event["type"] == "ping":
            continue
        _EVENT.validate_python(event, strict=True)
        found.append(event)
    return found


def fold(stream):
    """The message that a stream's events build up; checks the whole block lifecycle."""
    assert [stream[0]["type"], *[event["type"] for event in stream[-2:]]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    built, block, pieces = dict(stream[0]["message"]), None, {}
    assert (built["content"], built["stop_reason"], built["usage"]["output_tokens"]) == ([], None, 0)
    built["content"] = []
    for event in stream[1:-2]:
        match event["type"]:
            case "content_block_start":
                assert block is None
                assert event["index"] == len(built["content"])
                block, pieces = dict(event["content_block"]), {}
                assert not any(block.get(member) for member in ("text", "thinking", "input"))
            case "content_block_delta":
                assert event["index"] == len(built["content"])
                member = _DELTAS[block["type"]][event["delta"]["type"]]
                pieces.setdefault(member, []).append(event["delta"][member])
            case "content_block_stop":
                assert event["index"] == len(built["content"])
                if block["type"] == "tool_use":
                    block["input"] = json.loads("".join(pieces["partial_json"]) or "{}")
                else:
                    block |= {member: "".join(texts) for member, texts in pieces.items()}
                if block["type"] == "thinking":
                    assert list(pieces) == ["thinking", "signature"], "the signature comes last"
                built["content"].append(block)
                block = None
            case kind:
                raise AssertionError(kind)
    assert block is None
    built |= stream[-2]["delta"]
    built["usage"] = stream[-2]["usage"]
    start = stream[0]["message"]["usage"]
    assert {name: built["usage"][name] for name in start if name != "output_tokens"} == {
        name: value for name, value in start.items() if name != "output_tokens"
    }, "the split of the prompt is exact from the start"
    return built


def both(server, **members):
    """The aggregate message, after checking that a stream adds up to the same."""
    whole = message(server, **members)
    streamed = fold(events(server, **members))
    for answer in (whole, streamed):
        usage = answer["usage"]
        usage["input_tokens"] += usage.pop("cache_read_input_tokens")
        del answer["id"]
        for block in answer["content"]:
            block.pop("id", None)
    assert streamed == whole
    return whole


def refused(server, path=MESSAGES, **members):
    """The error of a request that is the client's fault."""
    answer = server.http.post(path, json=body(**members))
    assert answer.status_code == 400, answer.text
    return anthropic_error(answer, "invalid_request_error")


def anthropic_error(answer, kind):
    found = answer.json()
    assert set(found) == {"type", "error", "request_id"}
    assert found["type"] == "error"
    assert found["request_id"] == answer.headers["request-id"]
    assert found["error"]["type"] == kind
    assert found["error"]["message"]
    return found["error"]


def test_messages_aggregate_shape(start):
    server = start(engine_for("Hello there"), hybrid())
    answer = message(server, thinking=DISABLED)
    assert answer.pop("id").startswith("msg_")
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "any/label",
        "content": [{"type": "text", "text": "Hello there"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": answer["usage"]["input_tokens"],
            "cache_creation_input_tokens": None,
            "cache_read_input_tokens": 0,
            "output_tokens": len("Hello there") + 1,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }


def test_messages_thinking_and_text(start):
    server = start(engine_for("I think so.\n</think>\n\nYes."), hybrid())
    answer = both(server)
    assert [block["type"] for block in answer["content"]] == ["thinking", "text"]
    thought, text = answer["content"]
    assert (thought["thinking"], text["text"]) == ("I think so.", "Yes.")
    assert thought["signature"]
    assert answer["usage"]["output_tokens_details"]["thinking_tokens"] == len("I think so.\n")


def test_messages_parallel_calls_have_their_own_blocks(start):
    server = start(
        engine_for(f"Hm.\n</think>\n\nLet me see.\n\n{CALL}\n{CALL.replace('Paris', 'Rome')}"), hybrid()
    )
    answer = both(server, tools=[WEATHER], max_tokens=1000)
    assert [block["type"] for block in answer["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["input"] for block in answer["content"][2:]] == [
        {"city": "Paris", "days": 3, "metric": True},
        {"city": "Rome", "days": 3, "metric": True},
    ]
    assert answer["stop_reason"] == "tool_use"
    ids = [block["id"] for block in message(server, tools=[WEATHER], max_tokens=1000)["content"][2:]]
    assert len(set(ids)) == 2
    assert all(call_id.startswith("toolu_") for call_id in ids)


def test_messages_a_call_without_arguments_still_has_a_delta(start):
    server = start(engine_for(f"</think>\n\n{PING_CALL}"), hybrid())
    found = events(server, tools=[PING_TOOL], max_tokens=1000)
    deltas = [event["delta"]["type"] for event in found if event["type"] == "content_block_delta"]
    assert deltas == ["input_json_delta"]
    assert both(server, tools=[PING_TOOL], max_tokens=1000)["content"][0]["input"] == {}


def test_messages_arguments_keep_their_order_and_spelling(start):
    call = (
        "<tool_call>\n<function=put>\n<parameter=z>\n1.50\n</parameter>\n<parameter=a>\n1e2\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    tool = {"name": "put", "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}}}
    server = start(engine_for(f"</think>\n\n{call}"), hybrid())
    raw = server.http.post(MESSAGES, json=body(tools=[tool], max_tokens=1000)).text
    assert '"input":{"z": 1.50, "a": 1e2}' in raw
    streamed = events(server, tools=[tool], max_tokens=1000)
    pieces = [event["delta"]["partial_json"] for event in streamed if event["type"] == "content_block_delta"]
    assert "".join(pieces) == '{"z": 1.50, "a": 1e2}'


def test_messages_a_call_cut_by_the_limit_is_max_tokens(start):
    server = start(engine_for(f"</think>\n\n{CALL}"), hybrid())
    answer = both(server, tools=[WEATHER], max_tokens=80)
    assert answer["stop_reason"] == "max_tokens"
    assert [block["type"] for block in answer["content"]] == ["text"]


def test_messages_thinking_cut_by_the_limit_invents_no_text(start):
    answer = both(start(engine_for("thinking and thinking"), hybrid()), max_tokens=8)
    assert answer["stop_reason"] == "max_tokens"
    assert [(block["type"], block["thinking"]) for block in answer["content"]] == [("thinking", "thinking")]


def test_messages_an_empty_answer_has_no_blocks(start):
    answer = both(start(engine_for(""), hybrid()), thinking=DISABLED)
    assert (answer["content"], answer["stop_reason"]) == ([], "end_turn")


@pytest.mark.parametrize("text", ["</think>\n\nOne two STOP three", "One two STOP three</think>\n\nx"])
def test_messages_a_custom_stop_is_named(start, text):
    answer = both(start(engine_for(text), hybrid()), stop_sequences=["never", "STOP"])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "STOP")
    (block,) = answer["content"]
    assert block.get("text", block.get("thinking")) == "One two "


def test_messages_context_exhaustion_has_its_own_reason(start):
    server = start(engine_for("endless ", end=False), hybrid())
    answer = message(server, messages=[user("x" * 3900)], max_tokens=100_000, thinking=DISABLED)
    assert answer["stop_reason"] == "model_context_window_exceeded"
    assert answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"] <= 4097


def test_messages_reused_tokens_are_read_from_the_cache(start):
    server = start(engine_for("ok"), hybrid())
    first, again = (message(server, thinking=DISABLED)["usage"] for _ in range(2))
    assert first["cache_read_input_tokens"] == 0
    assert again["cache_read_input_tokens"] > 0
    assert again["input_tokens"] + again["cache_read_input_tokens"] == first["input_tokens"]
    assert again["cache_creation_input_tokens"] is None


def test_messages_message_start_comes_before_prefill(start):
    """The split of the prompt is known at admission; a long prompt does not delay it."""
    engine = engine_for("</think>\n\nok", prefill_chunk=256, prefill_seconds=0.05)
    server = start(engine, hybrid())
    prompt = [user("long " * 400)]
    with server.http.stream("POST", MESSAGES, json=body(messages=prompt, stream=True)) as answer:
        frames = iter(answer.iter_lines())
        first = next(frames)
        second = json.loads(next(frames).removeprefix("data: "))
        names = [line for line in frames if line.startswith("event: ")]
    assert first == "event: message_start"
    assert second["message"]["usage"]["input_tokens"] > 2000
    progress = names.index("event: content_block_start")
    assert names[:progress] == ["event: ping"] * progress
    assert progress > 3


def test_messages_one_message_is_many_times_the_same(start):
    """Ids are fresh, everything else of a greedy answer repeats."""
    server = start(engine_for("</think>\n\nSame."), hybrid())
    ids = {message(server, temperature=0)["id"] for _ in range(3)}
    assert len(ids) == 3
