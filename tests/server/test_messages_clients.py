"""anthropic-python drives the server: what its helpers read is there."""

import anthropic
import pytest

from ninfer_jax.errors import EngineError
from tests.server.fake_engine import FakeEngine
from tests.server.scripted import engine_for, hybrid, prompt_text
from tests.server.test_chat_output import CALL
from tests.server.test_messages_basics import WEATHER, user

pytestmark = pytest.mark.client

TWO_CALLS = f"Two cities.\n</think>\n\n{CALL}\n{CALL.replace('Paris', 'Rome')}"
HI = {"model": "claude-local", "max_tokens": 1000, "messages": [user()]}


@pytest.fixture
def client(start):
    opened = []

    def connect(engine, *, key="unused", **options):
        server = start(engine, hybrid(), **options)
        opened.append(anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=60))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def test_messages_create(client):
    answer = client(engine_for("Hm.</think>\n\nHello.")).messages.create(**HI)
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert (answer.content[0].thinking, answer.content[1].text) == ("Hm.", "Hello.")
    assert (answer.model, answer.stop_reason) == ("claude-local", "end_turn")
    assert answer._request_id.startswith("req_")


def test_messages_stream_helper(client):
    api = client(engine_for("Hm.</think>\n\nHello there."))
    with api.messages.stream(**HI) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert {"thinking", "signature", "text", "content_block_stop", "message_stop"} <= set(kinds)
    assert [block.type for block in final.content] == ["thinking", "text"]
    assert final.content[0].signature
    assert final.content[1].text == "Hello there."
    assert final.usage.output_tokens == len("Hm.Hello there.\n\n") + 2
    with api.messages.stream(**HI) as stream:
        assert "".join(stream.text_stream) == "Hello there."


def test_messages_beta_namespace(client):
    """It asks with ``?beta=true`` and beta headers."""
    api = client(engine_for("</think>\n\nHello."))
    answer = api.beta.messages.create(**HI, betas=["context-management-2025-06-27"])
    assert answer.content[0].text == "Hello."
    assert api.beta.messages.count_tokens(model="m", messages=[user()]).input_tokens > 0


@pytest.mark.parametrize("stream", [True, False])
def test_messages_tool_loop_with_two_parallel_calls(client, stream):
    engine = engine_for(TWO_CALLS, "</think>\n\nWarm in both.")
    api = client(engine)
    history = [user("Weather in Paris and Rome?")]
    asked = {**HI, "messages": history, "tools": [WEATHER]}
    if stream:
        with api.messages.stream(**asked) as events:
            answer = events.get_final_message()
    else:
        answer = api.messages.create(**asked)
    assert answer.stop_reason == "tool_use"
    calls = [block for block in answer.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [
        {"city": "Paris", "days": 3, "metric": True},
        {"city": "Rome", "days": 3, "metric": True},
    ]
    history.append(answer.to_param())
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": f"warm in {call.input['city']}"}
        for call in reversed(calls)  # a client may answer in any order
    ]
    history.append(user(results))
    final = api.messages.create(**asked)
    assert final.content[0].text == "Warm in both."
    prompt = prompt_text(engine)
    assert prompt.index("warm in Paris") < prompt.index("warm in Rome")


def test_messages_thinking_with_signature_replay(client):
    """The history carries thinking back, to another server process that never saw the signature."""
    first = client(engine_for("Deep thought.</think>\n\nFirst."))
    config = {"type": "enabled", "budget_tokens": 1024}
    answer = first.messages.create(**{**HI, "max_tokens": 2000}, thinking=config)
    assert answer.content[0].signature
    engine = engine_for("</think>\n\nSecond.")
    again = client(engine, preserve_thinking=True).messages.create(
        **{**HI, "max_tokens": 2000, "messages": [user(), answer.to_param(), user("more")]}, thinking=config
    )
    assert again.content[0].text == "Second."
    assert "<think>\nDeep thought.\n</think>\n\nFirst." in prompt_text(engine)


def test_messages_models_are_listed(client):
    api = client(engine_for("x"))
    assert [(model.id, model.display_name) for model in api.models.list()] == [("fake-model", "fake-model")]
    assert api.models.retrieve("fake-model").type == "model"


def test_messages_count_tokens(client):
    api = client(engine_for("</think>\n\nok"))
    asked = {"model": "m", "messages": [user()], "tools": [WEATHER], "system": "Be terse."}
    counted = api.messages.count_tokens(**asked).input_tokens
    usage = api.messages.create(**asked, max_tokens=5).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_messages_error_classes(client):
    api = client(engine_for("x"), key="secret", api_key="secret")
    with pytest.raises(anthropic.BadRequestError) as bad:
        api.messages.create(**HI, extra_body={"temperature": 9})
    assert "temperature" in bad.value.message
    assert bad.value.body["error"]["type"] == "invalid_request_error"
    assert bad.value.request_id == bad.value.body["request_id"]
    with pytest.raises(anthropic.AuthenticationError):
        api.with_options(api_key="wrong").messages.create(**HI)
    with pytest.raises(anthropic.NotFoundError):
        api.messages.batches.list()


def test_messages_bearer_token_is_accepted(start):
    server = start(engine_for("</think>\n\nok"), hybrid(), api_key="secret")
    with anthropic.Anthropic(base_url=server.url, auth_token="secret", api_key=None, timeout=60) as api:
        assert api.messages.create(**HI).content[0].text == "ok"


def test_messages_overload_is_its_own_class(client):
    engine = FakeEngine(max_concurrency=1, max_pending=0, round_seconds=0.005)
    api = client(engine)
    with api.messages.stream(**HI) as running:
        next(iter(running))
        with pytest.raises(anthropic.APIStatusError) as full:
            api.messages.create(**HI)
    assert full.value.status_code == 529
    assert full.value.body["error"]["type"] == "overloaded_error"


def test_messages_mid_stream_error_is_raised(client):
    engine = engine_for("endless ", end=False, round_seconds=0.005)
    api = client(engine)
    with api.messages.stream(**HI) as stream:
        rest = iter(stream)
        while next(rest).type != "content_block_delta":
            pass
        engine.fail(EngineError("device lost"))
        with pytest.raises(anthropic.APIStatusError, match="device lost"):
            list(rest)
