"""A call whose arguments come in pieces: in every protocol the deltas add up to the aggregate's arguments.

The parsers give calls whole today; the protocols promise clients no more than concatenation.
"""

import itertools

import pytest

from ninfer_jax.server.completion import Completion
from ninfer_jax.server.protocols.chat_stream import ChatChunks, StreamOptions
from ninfer_jax.server.protocols.messages_stream import MessageEvents
from ninfer_jax.server.protocols.responses_output import OutputItems
from ninfer_jax.server.protocols.responses_tools import FunctionName
from ninfer_jax.text.deltas import merge
from ninfer_jax.types import Output, TextDelta, ToolCallDelta

ARGUMENTS = ('{"path": "a\\n\\u00e9", "n": 1.50}', "{}")
CUTS = [*itertools.combinations(range(len(ARGUMENTS[0]) + 1), 2)][::7]


def outputs(cuts, *, per_event):
    """Text, then two calls; the first in three pieces, which may be empty."""
    whole, edges = ARGUMENTS[0], [0, *cuts, len(ARGUMENTS[0])]
    pieces = [whole[start:end] for start, end in itertools.pairwise(edges)]
    deltas = [
        TextDelta("content", "Let me see."),
        *(ToolCallDelta(0, None if index else "write", piece) for index, piece in enumerate(pieces)),
        ToolCallDelta(1, "ping", ARGUMENTS[1]),
    ]
    for at in range(0, len(deltas), per_event):
        yield Output((at,), merge(deltas[at : at + per_event]), at + 1, 0.0)


def fresh_ids():
    number = itertools.count()
    return lambda prefix="": f"{prefix}{next(number)}"


def aggregate(events):
    completion = Completion()
    for event in events:
        completion.add(event)
    return [(call.name, call.arguments) for call in completion.tool_calls]


def chat(events):
    chunks = ChatChunks({}, StreamOptions(), fresh_ids())
    calls = {}
    for event in events:
        for chunk in chunks.output(event):
            for call in chunk["choices"][0]["delta"].get("tool_calls", ()):
                function = call["function"]
                if call["index"] not in calls:
                    assert call["type"] == "function"
                    assert call["id"]
                    calls[call["index"]] = [function["name"], ""]
                else:
                    assert "id" not in call
                    assert "name" not in function
                calls[call["index"]][1] += function["arguments"]
    return [tuple(calls[index]) for index in sorted(calls)]


def responses(events):
    names = {name: FunctionName(name, None) for name in ("write", "ping")}
    items = OutputItems(fresh_ids(), names, seals_reasoning=False)
    told = [each for event in events for delta in event.deltas for each in items.feed(delta)]
    told += items.close(cut=False)
    calls = {}
    for event in told:
        match event["type"]:
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                calls[event["output_index"]] = [event["item"]["name"], ""]
            case "response.function_call_arguments.delta":
                calls[event["output_index"]][1] += event["delta"]
            case "response.function_call_arguments.done":
                assert event["arguments"] == calls[event["output_index"]][1]
            case "response.output_item.done" if event["item"]["type"] == "function_call":
                assert event["item"]["arguments"] == calls[event["output_index"]][1]
                assert event["item"]["status"] == "completed"
    return [tuple(calls[index]) for index in sorted(calls)]


def messages(events):
    stream = MessageEvents({}, fresh_ids())
    calls = {}
    for event in events:
        for frame in stream.output(event):
            data = frame.data
            block = data.get("content_block", {})
            if block.get("type") == "tool_use":
                calls[data["index"]] = [block["name"], ""]
            elif data.get("delta", {}).get("type") == "input_json_delta":
                calls[data["index"]][1] += data["delta"]["partial_json"]
    return [tuple(calls[index]) for index in sorted(calls)]


@pytest.mark.parametrize("protocol", [chat, responses, messages], ids=lambda function: function.__name__)
@pytest.mark.parametrize("per_event", [1, 2, 5])
def test_pieces_add_up_to_the_aggregate(protocol, per_event):
    for cuts in CUTS:
        events = list(outputs(cuts, per_event=per_event))
        whole = aggregate(events)
        assert whole == [("write", ARGUMENTS[0]), ("ping", ARGUMENTS[1])]
        assert protocol(events) == whole, cuts
