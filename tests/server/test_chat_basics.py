"""Chat Completions over real HTTP: one answer, one stream, and that they are the same answer."""

import json

import httpx
import pytest

from tests.server.fake_engine import FakeEngine, idle_within, say

CHAT = "/v1/chat/completions"


def user(text="hello"):
    return [{"role": "user", "content": text}]


def chat(server, **members):
    answer = server.http.post(CHAT, json={"messages": user(), "max_tokens": 8, **members})
    assert answer.status_code == 200, answer.text
    return answer.json()


def stream(server, **members):
    """The JSON chunks of a stream that ended in form."""
    body = {"messages": user(), "max_tokens": 8, "stream": True, **members}
    with server.http.stream("POST", CHAT, json=body) as answer:
        lines = list(answer.iter_lines())
    assert answer.status_code == 200, lines
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [line for line in lines if line][-1] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_aggregate_shape(start):
    server = start(FakeEngine(say("Hello there")))
    answer = chat(server, max_tokens=100)
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "fake-model"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello there", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    prompt = len("<user>hello\n<assistant>")
    assert answer["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 12,
        "total_tokens": prompt + 12,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_stream_begins_with_the_role_and_ends_with_the_reason(start):
    chunks = stream(start(FakeEngine(say("Hi"))))
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all("role" not in delta for delta in deltas[1:])
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert "timings" in chunks[-1]
    assert not any("usage" in chunk for chunk in chunks)


@pytest.mark.parametrize("text", ["Hello there", "Grüße 你好 👩‍👩‍👧", "", " \n "])
def test_stream_and_aggregate_give_the_same_answer(start, text):
    server = start(FakeEngine(say(text)))
    whole = chat(server, max_tokens=200)["choices"][0]
    chunks = stream(server, max_tokens=200)
    pieces = [chunk["choices"][0] for chunk in chunks]
    assert (
        "".join(piece["delta"].get("content", "") for piece in pieces) == whole["message"]["content"] == text
    )
    assert pieces[-1]["finish_reason"] == whole["finish_reason"] == "stop"


def test_usage_chunk_comes_last_with_empty_choices(start):
    chunks = stream(start(), stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert [chunk["usage"] is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 8
    assert ["timings" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_every_answer_has_its_own_request_id(start):
    server = start()
    answers = [server.http.get("/v1/models") for _ in range(3)]
    answers += [server.http.post(CHAT, json={"messages": user(), "max_tokens": 1}) for _ in range(3)]
    answers += [server.http.post(CHAT, content=b"{"), server.http.get("/nowhere")]
    ids = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)


def test_a_client_that_leaves_frees_its_lane(start):
    engine = FakeEngine(round_seconds=0.002)
    server = start(engine)
    with server.http.stream("POST", CHAT, json={"messages": user(), "stream": True}) as answer:
        next(answer.iter_lines())
    assert chat(server, max_tokens=1)["usage"]["completion_tokens"] == 1
    assert idle_within(engine)


def test_a_client_that_leaves_during_an_aggregate_frees_its_lane(start):
    engine = FakeEngine(round_seconds=0.01)
    server = start(engine)
    with pytest.raises(httpx.ReadTimeout):
        server.http.post(CHAT, json={"messages": user()}, timeout=0.2)
    assert chat(server, max_tokens=1)["usage"]["completion_tokens"] == 1
    assert idle_within(engine)
