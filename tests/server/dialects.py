"""How each of the three protocols spells one request and its answer, for tests that hold for all of them."""

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.server import responses, test_messages_basics
from tests.server.responses import RESPONSES
from tests.server.test_chat_basics import CHAT
from tests.server.test_messages_basics import MESSAGES

STREAMS = [False, True]


@dataclass(frozen=True)
class Answer:
    """One answer in the words of no protocol."""

    text: str
    finish: str
    prompt: int
    cached: int
    completion: int
    whole: dict[str, Any]


class Chat:
    path = CHAT
    limit = "length"
    context_limit = "length"
    stopped = "stop"

    @staticmethod
    def body(text="hello", tokens=16, **members):
        messages = [{"role": "user", "content": text}]
        given = {"model": "fake-model", "messages": messages, "max_tokens": tokens, "temperature": 0}
        return {**given, **members}

    @staticmethod
    def read(whole):
        usage, choice = whole["usage"], whole["choices"][0]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        return Answer(
            choice["message"]["content"],
            choice["finish_reason"],
            usage["prompt_tokens"],
            cached,
            usage["completion_tokens"],
            whole,
        )

    @staticmethod
    def fold(answer):
        lines = [line for line in answer.text.split("\n\n") if line and not line.startswith(":")]
        assert lines.pop() == "data: [DONE]"
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
        choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"message": message, "finish_reason": choices[-1]["finish_reason"]}
        return {"choices": [choice], "usage": chunks[-1]["usage"], "timings": chunks[-1]["timings"]}

    @staticmethod
    def streamed(body):
        return {**body, "stream": True, "stream_options": {"include_usage": True}}

    @staticmethod
    def stop(text):
        return {"stop": [text]}


class Responses:
    path = RESPONSES
    limit = "incomplete"
    context_limit = "incomplete"

    @staticmethod
    def body(text="hello", tokens=16, **members):
        given = {"model": "fake-model", "input": text, "max_output_tokens": tokens, "temperature": 0}
        return {**given, **members}

    @staticmethod
    def read(whole):
        usage = whole["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        return Answer(
            responses.text_of(whole),
            whole["status"],
            usage["input_tokens"],
            usage["input_tokens_details"]["cached_tokens"],
            usage["output_tokens"],
            whole,
        )

    @staticmethod
    def fold(answer):
        events = responses.events_of(answer)
        for event in events:
            responses.EVENT.validate_python(event)
        return responses.fold(events)

    @staticmethod
    def streamed(body):
        return {**body, "stream": True}


class Messages:
    path = MESSAGES
    limit = "max_tokens"
    context_limit = "model_context_window_exceeded"
    stopped = "stop_sequence"

    @staticmethod
    def body(text="hello", tokens=16, **members):
        given = {"model": "any/label", "messages": [{"role": "user", "content": text}]}
        return {**given, "max_tokens": tokens, "temperature": 0, **members}

    @staticmethod
    def read(whole):
        usage = whole["usage"]
        cached = usage["cache_read_input_tokens"]
        return Answer(
            "".join(block["text"] for block in whole["content"]),
            whole["stop_reason"],
            usage["input_tokens"] + cached,
            cached,
            usage["output_tokens"],
            whole,
        )

    @staticmethod
    def fold(answer):
        frames = [frame for frame in answer.text.split("\n\n") if frame and not frame.startswith(":")]
        events = [json.loads(frame.split("\n")[1].removeprefix("data: ")) for frame in frames]
        return test_messages_basics.fold([event for event in events if event["type"] != "ping"])

    @staticmethod
    def streamed(body):
        return {**body, "stream": True}

    @staticmethod
    def stop(text):
        return {"stop_sequences": [text]}


ALL = [pytest.param(dialect, id=dialect.__name__.lower()) for dialect in (Chat, Responses, Messages)]


each_protocol = pytest.mark.parametrize("dialect", ALL)


each_with_stops = pytest.mark.parametrize("dialect", [ALL[0], ALL[2]])


aggregate_and_stream = pytest.mark.parametrize("stream", STREAMS, ids=["aggregate", "stream"])


def ask(real, dialect, *, stream=False, **members):
    body = dialect.body(**members)
    answer = real.http.post(dialect.path, json=dialect.streamed(body) if stream else body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-request-id"]
    return dialect.read(dialect.fold(answer) if stream else answer.json())


def refuse(real, dialect, **members):
    answer = real.http.post(dialect.path, json=dialect.body(**members))
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


def becomes_idle(real, seconds=60.0):
    deadline = time.monotonic() + seconds
    while real.http.get("/stats").json()["outstanding"]:
        assert time.monotonic() < deadline, "a reservation was not given back"
        time.sleep(0.01)
    return True
