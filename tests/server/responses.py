"""What the Responses tests share: requests, streams read as events, and the types of openai-python."""

import json

import httpx
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

RESPONSES = "/v1/responses"
EVENT = TypeAdapter(ResponseStreamEvent)

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Current weather",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "metric": {"type": "boolean"},
        },
    },
}
PING = {"type": "function", "name": "ping"}
NAMESPACE = {
    "type": "namespace",
    "name": "mcp__weather",
    "description": "Weather service",
    "tools": [{"type": "function", "name": "get_current"}, {"type": "function", "name": "ping"}],
}
PNG = "data:image/png;base64,AAAA"
MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def call_text(name="get_weather", **values):
    lines = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{lines}</function>\n</tool_call>"


def body(**members):
    """A small request; a member given as ``...`` is left out."""
    given = {"model": "fake-model", "input": "hi", "max_output_tokens": 400, **members}
    return {name: value for name, value in given.items() if value is not ...}


def create(server, **members) -> dict:
    answer = server.http.post(RESPONSES, json=body(**members))
    assert answer.status_code == 200, answer.text
    response = answer.json()
    Response.model_validate(response, strict=True)
    return response


def refused(server, status=400, path=RESPONSES, **members) -> dict:
    answer = server.http.post(path, json=body(**members))
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    return error


def events_of(answer: httpx.Response) -> list[dict]:
    """The events of a stream; each frame's name is its type, its number follows the one before."""
    events = []
    for block in answer.text.split("\n\n"):
        if not block or block.startswith(":"):
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == len(events)
        events.append(event)
    return events


def stream(server, **members) -> list[dict]:
    """All events of a stream, each of which openai-python's types accept."""
    answer = server.http.post(RESPONSES, json=body(stream=True, **members))
    assert answer.status_code == 200, answer.text
    events = events_of(answer)
    for event in events:
        EVENT.validate_python(event)
    return events


def fold(events: list[dict]) -> dict:
    """Put a stream together as a client does, checking its order; returns the terminal object."""
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    items, open_parts, texts = {}, {}, {}
    for event in events[2:-1]:
        kind, index = event["type"], event.get("output_index")
        match kind:
            case "response.output_item.added":
                assert index == len(items), "items begin in order"
                assert event["item"]["status"] == "in_progress"
                items[index] = {**event["item"], "done": False}
                texts[index] = ""
            case "response.content_part.added":
                assert event["item_id"] == items[index]["id"]
                open_parts[index] = event["part"]
            case "response.content_part.done":
                assert open_parts.pop(index)["type"] == event["part"]["type"]
                assert event["part"]["text"] == texts[index]
            case "response.output_item.done":
                assert event["item"]["id"] == items[index]["id"]
                assert index not in open_parts
                items[index] = {**event["item"], "done": True}
            case "response.in_progress":
                pass
            case _ if kind.endswith(".delta"):
                assert event["item_id"] == items[index]["id"]
                assert index in open_parts or items[index]["type"] == "function_call"
                texts[index] += event["delta"]
            case _:
                assert kind.endswith(".done")
                assert event.get("text", event.get("arguments")) == texts[index]
    assert not open_parts
    final = events[-1]["response"]
    assert events[-1]["type"] == f"response.{final['status']}"
    assert all(item.pop("done") for item in items.values())
    assert final["output"] == list(items.values())
    assert events[0]["response"]["id"] == final["id"]
    assert events[0]["response"]["output"] == []
    return final


def both(server, **members) -> dict:
    """The answer, after checking that stream and aggregate say the same but for ids and times."""
    whole = create(server, **members)
    folded = fold(stream(server, **members))
    assert _plain(folded) == _plain(whole)
    return whole


def _plain(response: dict) -> dict:
    output = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in response["output"]]
    ids = ("id", "created_at", "completed_at", "usage")
    usage = {k: v for k, v in response["usage"].items() if k != "input_tokens_details"}  # a later one may hit
    return {**{k: v for k, v in response.items() if k not in ids}, "output": output, "usage": usage}


def user(text="x", **members):
    return {"type": "message", "role": "user", "content": text, **members}


def message(role, text="x", **members):
    return {"type": "message", "role": role, "content": text, **members}


def call(call_id="call_1", name="get_weather", arguments='{"city": "Paris"}', **members):
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, **members}


def result(call_id="call_1", output="20C", **members):
    return {"type": "function_call_output", "call_id": call_id, "output": output, **members}


def reasoning(text="think", **members):
    return {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        **members,
    }


def text_of(response: dict) -> str:
    return "".join(
        part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
    )
