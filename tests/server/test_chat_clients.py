"""openai-python drives the server: what its helpers read is there."""

import json

import openai
import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.scripted import engine_for, hybrid
from tests.server.test_chat_output import CALL, WEATHER

pytestmark = pytest.mark.client

TWO_CALLS = f"</think>\n\n{CALL}\n{CALL.replace('Paris', 'Rome')}"


@pytest.fixture
def client(start):
    opened = []

    def connect(engine, *, key="unused", frontend=None, **options):
        server = start(engine, frontend or hybrid(), **options)
        opened.append(openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=60))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def test_chat_create_and_models(client):
    api = client(engine_for("Hm.</think>\n\nHello."))
    answer = api.chat.completions.create(model="fake-model", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content == "Hello."
    assert answer.choices[0].message.reasoning_content == "Hm."
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id.startswith("req_")
    assert [model.id for model in api.models.list()] == ["fake-model"]
    assert api.models.retrieve("fake-model").id == "fake-model"


def test_chat_stream_with_usage(client):
    api = client(engine_for("</think>\n\nHello."))
    text, usage = "", None
    for chunk in api.chat.completions.create(
        model="fake-model",
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
        stream_options={"include_usage": True},
    ):
        for choice in chunk.choices:
            text += choice.delta.content or ""
        usage = chunk.usage or usage
    assert text == "Hello."
    assert usage.completion_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize("stream", [True, False])
def test_chat_tool_loop_with_two_parallel_calls(client, stream):
    engine = engine_for(TWO_CALLS, "</think>\n\nWarm in both.")
    api = client(engine)
    messages = [{"role": "user", "content": "Weather in Paris and Rome?"}]
    if stream:
        with api.chat.completions.stream(model="fake-model", messages=messages, tools=[WEATHER]) as events:
            answer = events.get_final_completion()
    else:
        answer = api.chat.completions.create(model="fake-model", messages=messages, tools=[WEATHER])
    assert answer.choices[0].finish_reason == "tool_calls"
    calls = answer.choices[0].message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Paris", "Rome"]
    messages.append(answer.choices[0].message.model_dump(exclude_none=True, exclude={"parsed"}))
    for call in reversed(calls):  # a client may answer in any order
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"warm ({call.id})"})
    final = api.chat.completions.create(model="fake-model", messages=messages, tools=[WEATHER])
    assert final.choices[0].message.content == "Warm in both."
    turns = [calls[0].id, calls[1].id]
    prompt = bytes(token for token in engine.requests[-1].prompt.token_ids if token < 256).decode()
    assert prompt.index(turns[0]) < prompt.index(turns[1])


def test_chat_stream_helper_events(client):
    api = client(engine_for("</think>\n\nHello there."))
    messages = [{"role": "user", "content": "hi"}]
    with api.chat.completions.stream(model="fake-model", messages=messages) as events:
        deltas = [event.delta for event in events if event.type == "content.delta"]
        final = events.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == "Hello there."


def test_chat_error_classes(client):
    api = client(engine_for("x"), key="secret", api_key="secret")
    hi = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.BadRequestError) as bad:
        api.chat.completions.create(model="fake-model", messages=hi, temperature=9)
    assert (bad.value.param, bad.value.code) == ("temperature", "invalid_value")
    with pytest.raises(openai.NotFoundError):
        api.chat.completions.create(model="other", messages=hi)
    with pytest.raises(openai.AuthenticationError):
        api.with_options(api_key="wrong").models.list()
    with pytest.raises(openai.NotFoundError):
        api.models.retrieve("other")


def test_chat_overload_is_a_rate_limit_error(client):
    engine = FakeEngine(max_concurrency=1, max_pending=0, round_seconds=0.005)
    api = client(engine)
    hi = [{"role": "user", "content": "hi"}]
    running = api.chat.completions.create(model="fake-model", messages=hi, stream=True)
    next(iter(running))
    with pytest.raises(openai.RateLimitError) as full:
        api.chat.completions.create(model="fake-model", messages=hi)
    assert full.value.code == "server_overloaded"
    running.close()


def test_chat_mid_stream_error_is_raised(client):
    from ninfer_jax.errors import EngineError

    engine = engine_for("endless ", end=False, round_seconds=0.005)
    api = client(engine)
    hi = [{"role": "user", "content": "hi"}]
    stream = api.chat.completions.create(model="fake-model", messages=hi, stream=True)
    chunks = iter(stream)
    next(chunks)
    engine.fail(EngineError("device lost"))
    with pytest.raises(openai.APIError, match="device lost"):
        list(chunks)
