"""Frameworks and agents people put in front of a server. Each runs where it is installed."""

import json
import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from tests.server.fake_engine import INFO, FakeEngine
from tests.server.scripted import engine_for, hybrid
from tests.server.test_chat_output import CALL, WEATHER

pytestmark = [pytest.mark.client, pytest.mark.filterwarnings("ignore")]  # their warnings are theirs

TWO_CALLS = f"Both.</think>\n\n{CALL}\n{CALL.replace('Paris', 'Rome')}"
QUESTION = "Weather in Paris and Rome?"


def test_langchain_chat_tool_loop(start):
    langchain = pytest.importorskip("langchain_openai")
    messages = pytest.importorskip("langchain_core.messages")
    server = start(engine_for(TWO_CALLS, "</think>\n\nWarm in both."), hybrid())
    model = langchain.ChatOpenAI(
        base_url=f"{server.url}/v1", api_key="none", model="fake-model", max_retries=0
    )
    bound = model.bind_tools([WEATHER])
    history = [messages.HumanMessage(QUESTION)]
    answer = bound.invoke(history)
    assert [call["args"]["city"] for call in answer.tool_calls] == ["Paris", "Rome"]
    history.append(answer)
    history += [messages.ToolMessage("warm", tool_call_id=call["id"]) for call in answer.tool_calls]
    assert bound.invoke(history).content == "Warm in both."


def test_langchain_chat_stream(start):
    langchain = pytest.importorskip("langchain_openai")
    server = start(engine_for("</think>\n\nHello there."), hybrid())
    model = langchain.ChatOpenAI(
        base_url=f"{server.url}/v1", api_key="none", model="fake-model", max_retries=0
    )
    assert "".join(chunk.content for chunk in model.stream("hi")) == "Hello there."


@pytest.mark.parametrize("stream", [True, False])
def test_litellm_chat_tool_loop(start, stream, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it would ask the network
    litellm = pytest.importorskip("litellm")
    server = start(engine_for(TWO_CALLS, "</think>\n\nWarm in both."), hybrid())

    def complete(messages):
        answer = litellm.completion(
            model="hosted_vllm/fake-model",
            api_base=f"{server.url}/v1",
            api_key="none",
            messages=messages,
            tools=[WEATHER],
            stream=stream,
        )
        return litellm.stream_chunk_builder(list(answer)) if stream else answer

    messages = [{"role": "user", "content": QUESTION}]
    message = complete(messages).choices[0].message
    cities = [json.loads(call.function.arguments)["city"] for call in message.tool_calls]
    assert cities == ["Paris", "Rome"]
    messages.append(message.model_dump(exclude_none=True))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "warm"} for call in message.tool_calls]
    assert complete(messages).choices[0].message.content == "Warm in both."


def test_opencode_chat_tool_turn(start, tmp_path):
    opencode = shutil.which("opencode")
    if opencode is None:
        pytest.skip("the opencode binary is not installed (npm opencode-ai)")
    (tmp_path / "note.txt").write_text("the word is heron\n")
    read = (
        f"</think>\n\n<tool_call>\n<function=read>\n<parameter=filePath>\n{tmp_path / 'note.txt'}\n"
        "</parameter>\n</function>\n</tool_call>"
    )
    front = hybrid(max_context=200_000)

    def agent(request):
        """It asks for a title on the side; the turn itself reads the file, then answers."""
        prompt = text_of(request)
        side = "</think>\n\nA word"
        reply = side if "<tools>" not in prompt else read
        reply = "</think>\n\nThe word is heron." if "the word is heron" in prompt else reply
        return iter([*front.tokenizer.encode(reply), 258])

    engine = FakeEngine(agent, info=replace(INFO, max_context=200_000), max_concurrency=2)
    server = start(engine, front)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{server.url}/v1", "apiKey": "none"},
        "models": {"fake-model": {"limit": {"context": 200_000, "output": 1000}}},
    }
    config = {
        "provider": {"local": provider},
        "model": "local/fake-model",
        "small_model": "local/fake-model",
        "permission": {"*": "allow"},
    }
    (tmp_path / "opencode.json").write_text(json.dumps(config))
    home = {name: str(tmp_path / name) for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    offline = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    done = subprocess.run(
        [opencode, "run", "--model", "local/fake-model", "What is the word in note.txt?"],
        cwd=tmp_path,
        env={**os.environ, **home, **offline, "OPENCODE_CONFIG": str(tmp_path / "opencode.json")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "The word is heron." in done.stdout
    assert any("the word is heron" in text_of(request) for request in engine.requests)


def text_of(request):
    return bytes(token for token in request.prompt.token_ids if token < 256).decode()
