"""``ninfer-jax generate`` over a tiny random model."""

import io
import json
from contextlib import nullcontext

import pytest

from ninfer_jax.cli import generate
from ninfer_jax.cli.main import main
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.inference_engine import InferenceEngine
from tests.engine import cases

MESSAGES = [{"role": "user", "content": "Hi"}]
SHORT = ["--greedy", "--max-tokens", "6"]


@pytest.fixture(scope="module")
def engine():
    config = EngineConfig(max_context=256, kv_capacity=256, prefill_chunk=64)
    with InferenceEngine(cases.loaded_model(), config=config) as engine:
        yield engine


@pytest.fixture(autouse=True)
def started(monkeypatch, engine):
    monkeypatch.setattr(generate, "_start", lambda args: nullcontext(engine))


@pytest.fixture(scope="module")
def answer(engine):
    return engine.generate(MESSAGES, temperature=0.0, max_tokens=6)


def test_a_prompt_is_a_user_message(capsys, answer):
    assert main(["generate", "--prompt", "Hi", *SHORT]) == 0
    out, err = capsys.readouterr()
    assert out == answer + "\n"
    assert "output tokens" in err
    assert "tok/s" in err


def test_messages_come_from_a_file_or_stdin(tmp_path, capsys, monkeypatch, answer):
    file = tmp_path / "chat.json"
    file.write_text(json.dumps({"messages": MESSAGES}))
    assert main(["generate", "--messages", str(file), *SHORT]) == 0
    assert capsys.readouterr().out == answer + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(MESSAGES)))
    assert main(["generate", "--messages", "-", *SHORT]) == 0
    assert capsys.readouterr().out == answer + "\n"


def test_raw_text_is_continued_without_a_template(capsys, engine):
    assert main(["generate", "--raw", "--prompt", "Hi", *SHORT]) == 0
    assert capsys.readouterr().out == engine.generate("Hi", temperature=0.0, max_tokens=6) + "\n"


def test_a_chat_remembers_and_survives_a_turn_too_long(capsys, monkeypatch, engine, answer):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"Hi\n\n{'x' * 300}\nAgain\n"))
    assert main(["generate", "--interactive", *SHORT]) == 0
    out, err = capsys.readouterr()
    history = [*MESSAGES, {"role": "assistant", "content": answer}, {"role": "user", "content": "Again"}]
    again = engine.generate(history, temperature=0.0, max_tokens=6)
    assert out == f"{answer}\n{again}\n"
    assert "error: the prompt has" in err
    assert "256" in err


@pytest.mark.parametrize(
    ("arguments", "blamed"),
    [
        ([], "--prompt"),
        (["--messages", "/nowhere.json"], "/nowhere.json"),
        (["--raw", "--interactive"], "--raw"),
        (["--system", "x", "--messages", "-"], "--system"),
    ],
)
def test_a_wrong_command_line_exits_2(capsys, arguments, blamed):
    assert main(["generate", *arguments]) == 2
    assert blamed in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", '"x"', "3", pytest.param("[" * 100_000, id="deep")])
def test_a_messages_file_of_another_shape_exits_2(tmp_path, capsys, text):
    file = tmp_path / "chat.json"
    file.write_text(text)
    assert main(["generate", "--messages", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_a_bad_value_names_its_option(capsys):
    assert main(["generate", "--prompt", "Hi", "--temperature", "9"]) == 1
    assert "temperature" in capsys.readouterr().err
