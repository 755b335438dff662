"""LangChain speaks Messages through ``langchain-anthropic``. Runs where it is installed."""

import pytest

from tests.server.scripted import engine_for, hybrid, prompt_text
from tests.server.test_messages_basics import WEATHER
from tests.server.test_messages_clients import TWO_CALLS

pytestmark = [pytest.mark.client, pytest.mark.filterwarnings("ignore")]  # its warnings are its own


@pytest.fixture
def model():
    langchain = pytest.importorskip("langchain_anthropic")

    def connect(server, **options):
        return langchain.ChatAnthropic(
            base_url=server.url, api_key="none", model="local", max_retries=0, max_tokens=2000, **options
        )

    return connect


@pytest.mark.parametrize("stream", [True, False])
def test_messages_langchain_tool_loop(start, model, stream):
    """Thinking and its signature travel along, as the package replays them."""
    messages = pytest.importorskip("langchain_core.messages")
    engine = engine_for(TWO_CALLS, "</think>\n\nWarm in both.")
    bound = model(start(engine, hybrid()), streaming=stream).bind_tools([WEATHER])
    history = [messages.SystemMessage("Be terse."), messages.HumanMessage("Weather in Paris and Rome?")]
    answer = bound.invoke(history)
    assert [call["args"]["city"] for call in answer.tool_calls] == ["Paris", "Rome"]
    history.append(answer)
    history += [messages.ToolMessage("warm", tool_call_id=call["id"]) for call in answer.tool_calls]
    assert bound.invoke(history).text == "Warm in both."
    assert "<think>\nTwo cities.\n</think>\n\n<tool_call>" in prompt_text(engine)


def test_messages_langchain_stream(start, model):
    chunks = list(model(start(engine_for("Hm.</think>\n\nHello there."), hybrid())).stream("hi"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.text == "Hello there."
    assert whole.usage_metadata["output_tokens"] > 10
