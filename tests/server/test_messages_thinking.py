"""Efforts, thinking modes and budgets of a Messages request."""

import pytest

from tests.server.scripted import engine_for, hybrid
from tests.server.test_messages_basics import DISABLED, MESSAGES, body, message, refused


@pytest.fixture(scope="module")
def script():
    return "</think>\n\nok"


def test_messages_efforts_reach_the_template(start):
    engine = engine_for("</think>\n\nok")
    server = start(engine, hybrid())
    for effort in ("low", "medium", "xhigh"):
        message(server, output_config={"effort": effort})
    message(server)
    low, medium, xhigh, default = (request.prompt.token_ids for request in engine.requests)
    assert len({low, medium, xhigh}) == 3
    assert default == xhigh


def test_messages_an_effort_the_template_lacks_is_refused(server):
    assert refused(server, output_config={"effort": "max"})["code"] == "reasoning_effort_not_supported"
    answer = server.http.post(MESSAGES, json=body(output_config={"effort": "max"}))
    said = answer.json()["error"]["message"]
    assert "output_config.effort" in said
    assert "CLAUDE_CODE_EFFORT_LEVEL=auto" in said
    assert "--lenient-api" in said


def test_messages_thinking_modes(start):
    engine = engine_for("Hm.</think>\n\nok")
    server = start(engine, hybrid(), no_thinking=True)
    prompts = []
    for thinking in (None, DISABLED, {"type": "adaptive"}):
        message(server, thinking=thinking)
        prompts.append(engine.requests[-1].prompt.token_ids)
    assert prompts[0] == prompts[1], "--no-thinking is the default of a request that says nothing"
    assert prompts[1] != prompts[2], "and a request may turn thinking on"


def test_messages_the_budget_is_enforced(start):
    """Thinking is closed at the budget by forced tokens that count, and the answer goes on."""
    engine = engine_for("x" * 1024 + "</think>\n\nnot reached", "y" * 1500)
    server = start(engine, hybrid())
    message(server, thinking={"type": "enabled", "budget_tokens": 1025}, max_tokens=3000)
    answer = message(server, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1500)
    thought, text = answer["content"]
    assert thought["thinking"].startswith("y" * 1024)
    assert not thought["thinking"].startswith("y" * 1025)
    assert "limited time" in thought["thinking"]
    assert "</think>" not in thought["thinking"] + text["text"]
    assert answer["usage"]["output_tokens"] == 1500


def test_messages_a_budget_that_cannot_close_is_refused(server):
    error = refused(server, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1030)
    assert error["code"] == "thinking_budget_capacity_insufficient"


def test_messages_a_request_budget_replaces_the_default(start):
    engine = engine_for("z" * 3000)
    server = start(engine, hybrid(), default_thinking_budget=10)
    short = message(server, max_tokens=400)["content"][0]["thinking"]
    assert short.startswith("z" * 10 + "\n\n Considering")
    long = message(server, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1400)
    assert long["content"][0]["thinking"].startswith("z" * 1024 + "\n\n Considering")
