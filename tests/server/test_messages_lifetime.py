"""Errors in Anthropic's form and status, before the first byte and after it; ids; keep-alives."""

import json

import pytest

from ninfer_jax.errors import EngineError
from tests.server.fake_engine import idle_within
from tests.server.responses import call_text
from tests.server.scripted import engine_for, hybrid
from tests.server.test_messages_basics import (
    COUNT,
    MESSAGES,
    WEATHER,
    anthropic_error,
    body,
    events,
    message,
    user,
)


def endless(**options):
    return engine_for("endless ", end=False, max_concurrency=1, round_seconds=0.005, **options)


def open_stream(server):
    return server.http.stream("POST", MESSAGES, json=body(stream=True, max_tokens=4000))


def test_messages_a_wrong_key_is_401(start):
    server = start(engine_for("ok"), hybrid(), api_key="secret")
    for path in (MESSAGES, COUNT):
        for headers in ({}, {"x-api-key": "wrong"}, {"authorization": "Bearer wrong"}):
            answer = server.http.post(path, json=body(), headers=headers)
            assert answer.status_code == 401
            assert anthropic_error(answer, "authentication_error")["code"] == "invalid_api_key"
        for headers in ({"x-api-key": "secret"}, {"authorization": "Bearer secret"}):
            assert server.http.post(path, json=body(), headers=headers).status_code == 200


def test_messages_unknown_paths_and_methods(start):
    server = start(engine_for("ok"), hybrid())
    for method, path, status, kind in [
        ("POST", f"{MESSAGES}/batches", 404, "not_found_error"),
        ("GET", MESSAGES, 405, "invalid_request_error"),
        ("DELETE", COUNT, 405, "invalid_request_error"),
    ]:
        answer = server.http.request(method, path)
        assert answer.status_code == status
        anthropic_error(answer, kind)


def test_messages_a_body_over_the_limit_is_413(start):
    server = start(engine_for("ok"), hybrid(), max_request_mib=1)
    for path in (MESSAGES, COUNT):
        answer = server.http.post(path, content=b"x" * ((1 << 20) + 1))
        assert answer.status_code == 413
        anthropic_error(answer, "request_too_large")


def test_messages_a_prompt_beyond_the_context_is_400(start):
    answer = start(engine_for("ok"), hybrid()).http.post(MESSAGES, json=body(messages=[user("x" * 5000)]))
    assert answer.status_code == 400
    error = anthropic_error(answer, "invalid_request_error")
    assert error["code"] == "context_length_exceeded"
    assert "4096" in error["message"]


@pytest.mark.parametrize("stream", [True, False])
def test_messages_a_full_house_is_529(start, stream):
    engine = endless(max_pending=0)
    server = start(engine, hybrid())
    with open_stream(server):
        answer = server.http.post(MESSAGES, json=body(stream=stream))
        assert answer.status_code == 529
        assert answer.headers["retry-after"]
        assert anthropic_error(answer, "overloaded_error")["code"] == "server_overloaded"
    assert idle_within(engine)


@pytest.mark.parametrize("stream", [True, False])
def test_messages_a_queue_timeout_is_504(start, stream):
    engine = endless(pending_timeout=0.2)
    server = start(engine, hybrid())
    with open_stream(server):
        answer = server.http.post(MESSAGES, json=body(stream=stream))
        assert answer.status_code == 504
        assert anthropic_error(answer, "timeout_error")["code"] == "request_queue_timeout"


def test_messages_a_queue_timeout_after_a_heartbeat_is_an_error_event(start):
    engine = endless(pending_timeout=0.4)
    server = start(engine, hybrid(), heartbeat=0.1)
    with open_stream(server), open_stream(server) as waiting:
        assert waiting.status_code == 200
        frames = [frame for frame in waiting.read().decode().split("\n\n") if frame]
    assert frames[0] == ": keep-alive"
    name, data = frames[-1].split("\n")
    assert name == "event: error"
    found = json.loads(data.removeprefix("data: "))
    assert found["error"]["type"] == "timeout_error"
    assert found["request_id"] == waiting.headers["request-id"]


def test_messages_an_engine_failure_before_the_first_byte_is_500(start):
    engine = endless()
    server = start(engine, hybrid())
    engine.script = failing(engine)
    answer = server.http.post(MESSAGES, json=body())
    assert answer.status_code == 500
    anthropic_error(answer, "api_error")


def failing(engine):
    """A script whose first token never comes: the engine fails instead."""

    def script(request):
        def tokens():
            engine.fail(EngineError("device lost"))
            yield 0

        return tokens()

    return script


def test_messages_an_engine_failure_mid_stream_is_an_error_event(start):
    engine = endless()
    server = start(engine, hybrid())
    with open_stream(server) as answer:
        lines = answer.iter_lines()
        for line in lines:
            if "content_block_delta" in line:
                break
        engine.fail(EngineError("device lost"))
        rest = [line for line in lines if line]
    assert rest[-2] == "event: error"
    found = json.loads(rest[-1].removeprefix("data: "))
    assert (found["type"], found["error"]["type"]) == ("error", "api_error")
    assert found["request_id"] == answer.headers["request-id"]


def test_messages_every_answer_has_its_own_request_id(start):
    server = start(engine_for("ok"), hybrid())
    answers = [
        server.http.post(MESSAGES, json=body()),
        server.http.post(MESSAGES, json=body(stream=True)),
        server.http.post(MESSAGES, json={}),
        server.http.post(COUNT, json=body()),
        server.http.post(COUNT, json={}),
    ]
    ids = [answer.headers["request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)
    assert all(found.startswith("req_") for found in ids)


def test_messages_silence_is_filled_with_comments(start):
    engine = engine_for("</think>\n\nok", prefill_chunk=8192, prefill_seconds=0.5)
    server = start(engine, hybrid(), heartbeat=0.1)
    with server.http.stream("POST", MESSAGES, json=body(stream=True)) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines.count(": keep-alive") >= 2
    assert lines[0] == "event: message_start"


def test_messages_a_held_call_is_not_a_silence(start, monkeypatch):
    monkeypatch.setattr("ninfer_jax.server.protocols.sign_of_life.SIGN_OF_LIFE_SECONDS", 0.02)
    engine = engine_for(f"</think>\n\n{call_text(city='x' * 100)}", round_seconds=0.005)
    server = start(engine, hybrid())
    members = {"stream": True, "max_tokens": 400, "tools": [WEATHER]}
    with server.http.stream("POST", MESSAGES, json=body(**members)) as answer:
        names = [line for line in answer.iter_lines() if line.startswith("event: ")]
    opened = names.index("event: content_block_start")
    assert names[:opened].count("event: ping") > 2
    assert names[opened:].count("event: content_block_start") == 1


def test_messages_a_client_that_leaves_frees_its_place(start):
    engine = endless(max_pending=0)
    server = start(engine, hybrid())
    with open_stream(server) as answer:
        next(answer.iter_lines())
    assert idle_within(engine)
    assert message(server, max_tokens=1)


def test_messages_the_start_up_probe_is_harmless(start):
    """Claude Code asks ``HEAD /`` first and takes any answer."""
    server = start(engine_for("</think>\n\nok"), hybrid())
    answer = server.http.head("/")
    assert answer.status_code < 500
    assert answer.content == b""
    assert events(server)[-1]["type"] == "message_stop"
