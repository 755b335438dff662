"""openai-python drives the Responses endpoint: create, stream, tool loop, resources, counting."""

import json

import openai
import pytest

from tests.server.responses import NAMESPACE, WEATHER, call_text
from tests.server.scripted import engine_for, hybrid, prompt_text

pytestmark = pytest.mark.client

CALLS = f"Look it up.</think>\n\n{call_text(city='Paris')}\n{call_text(city='Rome')}"


@pytest.fixture
def client(start):
    opened = []

    def connect(engine, **options):
        server = start(engine, hybrid(), **options)
        opened.append(openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0, timeout=60))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def test_responses_create_and_resources(client):
    api = client(engine_for("Hm.</think>\n\nHello."))
    made = api.responses.create(model="fake-model", input="hi", instructions="Be kind.", metadata={"a": "b"})
    assert (made.output_text, made.status, made.metadata) == ("Hello.", "completed", {"a": "b"})
    assert made.output[0].content[0].text == "Hm."
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens
    assert made._request_id.startswith("req_")
    again = api.responses.retrieve(made.id)
    assert again.to_dict() == made.to_dict()
    (item,) = api.responses.input_items.list(made.id).data
    assert item.content[0].text == "hi"
    api.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as missing:
        api.responses.retrieve(made.id)
    assert missing.value.code == "response_not_found"
    with pytest.raises(openai.BadRequestError):
        api.responses.create(model="fake-model", input="x", previous_response_id=made.id)


def test_responses_input_items_page_by_page(client):
    api = client(engine_for("x"))
    given = [{"role": "user", "content": f"m{number}"} for number in range(7)]
    made = api.responses.create(model="fake-model", input=given, max_output_tokens=1)
    texts = [item.content[0].text for item in api.responses.input_items.list(made.id, limit=3, order="asc")]
    assert texts == [f"m{number}" for number in range(7)]


def test_responses_count(client):
    api = client(engine_for("x"))
    request = {"model": "fake-model", "input": "count me", "instructions": "Be terse.", "tools": [WEATHER]}
    counted = api.responses.input_tokens.count(**request).input_tokens
    assert counted == api.responses.create(**request).usage.input_tokens


def test_responses_streamed_items_equal_the_final_response(client):
    api = client(engine_for(f"{CALLS}"))
    with api.responses.stream(model="fake-model", input="weather?", tools=[WEATHER]) as stream:
        events = list(stream)
        final = stream.get_final_response()
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.to_dict() for item in done] == [
        {k: v for k, v in item.to_dict().items() if k != "parsed_arguments"} for item in final.output
    ]
    pieces = {}
    for event in events:
        if event.type == "response.function_call_arguments.delta":
            pieces[event.item_id] = pieces.get(event.item_id, "") + event.delta
    calls = [item for item in final.output if item.type == "function_call"]
    assert pieces == {item.id: item.arguments for item in calls}
    assert len({item.call_id for item in calls}) == 2


def test_responses_stream_helper_collects_text(client):
    api = client(engine_for("Hm.</think>\n\nHello there."))
    with api.responses.stream(model="fake-model", input="hi") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        assert text == stream.get_final_response().output_text == "Hello there."


@pytest.mark.parametrize("chained", [True, False])
def test_responses_tool_loop(client, chained):
    engine = engine_for(CALLS, "</think>\n\nWarm in both.")
    api = client(engine)
    tools = [WEATHER, NAMESPACE]
    history = [{"role": "user", "content": "weather?"}]
    first = api.responses.create(model="fake-model", input=history, tools=tools)
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(item.arguments)["city"] for item in calls] == ["Paris", "Rome"]
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": f"warm for {item.call_id}"}
        for item in reversed(calls)
    ]
    if chained:
        final = api.responses.create(
            model="fake-model", input=results, tools=tools, previous_response_id=first.id
        )
    else:
        echoed = [item.model_dump(exclude_none=True) for item in first.output]
        final = api.responses.create(model="fake-model", input=[*history, *echoed, *results], tools=tools)
    assert final.output_text == "Warm in both."
    prompt = prompt_text(engine)
    first_result, second_result = (prompt.index(f"warm for {item.call_id}") for item in calls)
    assert first_result < second_result


def test_responses_errors_have_their_classes(client):
    api = client(engine_for("x"))
    with pytest.raises(openai.BadRequestError) as bad:
        api.responses.create(model="fake-model", input="x", temperature=3)
    assert (bad.value.param, bad.value.code) == ("temperature", "invalid_value")
    with pytest.raises(openai.NotFoundError):
        api.responses.create(model="other", input="x")
    with pytest.raises(openai.BadRequestError):
        api.responses.compact(model="fake-model", input="x")
