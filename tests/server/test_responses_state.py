"""Stored Responses over HTTP: retrieval, continuation, deletion, sessions, pages."""

import json
from itertools import count

import pytest

from ninfer_jax.server.completion import Completion, TextSegment
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.server.protocols import responses
from ninfer_jax.server.protocols.request import RequestContext
from ninfer_jax.server.protocols.responses import ResponsesBuilder
from ninfer_jax.server.response_store import ResponseStore
from ninfer_jax.types import Admitted, Finished, FinishReason, OutputSummary, Timings, Usage
from tests.server.fake_engine import INFO, FakeEngine
from tests.server.responses import (
    NAMESPACE,
    RESPONSES,
    WEATHER,
    body,
    call_text,
    create,
    fold,
    refused,
    result,
    stream,
    text_of,
    user,
)
from tests.server.scripted import engine_for, hybrid, prompt_text


def gone(answer):
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "response_not_found"


def test_retrieve_gives_the_same_object(start):
    server = start(engine_for("Hm.</think>\n\nYes."), hybrid())
    response = create(server)
    assert server.http.get(f"{RESPONSES}/{response['id']}").json() == response
    streamed = fold(stream(server))
    assert server.http.get(f"{RESPONSES}/{streamed['id']}").json() == streamed


def test_unknown_ids_are_404_on_every_resource(start):
    http = start(engine_for("x"), hybrid()).http
    gone(http.get(f"{RESPONSES}/resp_nope"))
    gone(http.delete(f"{RESPONSES}/resp_nope"))
    gone(http.get(f"{RESPONSES}/resp_nope/input_items"))
    gone(http.post(f"{RESPONSES}/resp_nope/cancel"))


def test_store_false_is_neither_retrieved_nor_continued(start):
    server = start(engine_for("x"), hybrid())
    response = create(server, store=False)
    assert response["store"] is False
    gone(server.http.get(f"{RESPONSES}/{response['id']}"))
    error = refused(server, previous_response_id=response["id"])
    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")


def test_a_response_that_names_itself_is_unknown(start):
    server = start(engine_for("x"), hybrid())
    assert refused(server, previous_response_id="resp_self")["code"] == "previous_response_not_found"


def test_numbers_of_any_size_in_tools_and_items_are_echoed_and_continued(start):
    """A schema may say ``"maximum": 1e999``, or 10**30; the stored history must stay readable."""
    server = start(engine_for("x"), hybrid())
    numbers = "[123456789012345678901234567890, -123456789012345678901234567890, 1e999, 1e2]"
    tools = f'[{{"type": "function", "name": "f", "parameters": {{"type": "object", "enum": {numbers}}}}}]'
    part = f'{{"type": "input_text", "text": "hi", "unknown": {numbers}}}'
    item = f'{{"type": "message", "role": "user", "content": [{part}]}}'
    raw = f'{{"model": "fake-model", "max_output_tokens": 16, "tools": {tools}, "input": [{item}]}}'
    answer = server.http.post(RESPONSES, content=raw)
    assert answer.status_code == 200, answer.text
    assert numbers.replace(" ", "") in answer.text
    first = answer.json()["id"]
    listed = server.http.get(f"{RESPONSES}/{first}/input_items")
    assert listed.status_code == 200
    assert numbers.replace(" ", "") in listed.text
    create(server, previous_response_id=first)


def test_delete_takes_the_object_and_leaves_descendants(start):
    engine = engine_for("</think>\n\nOne.", "</think>\n\nTwo.", "</think>\n\nThree.")
    server = start(engine, hybrid())
    first = create(server, input="first question")
    second = create(server, input="second question", previous_response_id=first["id"])
    answer = server.http.delete(f"{RESPONSES}/{first['id']}")
    assert answer.json() == {"id": first["id"], "object": "response.deleted", "deleted": True}
    gone(server.http.get(f"{RESPONSES}/{first['id']}"))
    gone(server.http.delete(f"{RESPONSES}/{first['id']}"))
    assert refused(server, previous_response_id=first["id"])["code"] == "previous_response_not_found"
    create(server, input="third question", previous_response_id=second["id"])
    prompt = prompt_text(engine)
    parts = ["first question", "One.", "second question", "Two.", "third question"]
    assert [prompt.index(part) for part in parts] == sorted(prompt.index(part) for part in parts)


def test_a_continuation_equals_the_history_sent_by_hand(start):
    engine = engine_for("Hm.</think>\n\nOne.")
    server = start(engine, hybrid())
    first = create(server, input="q1")
    create(server, input="q2", previous_response_id=first["id"])
    create(server, input=[user("q1"), *first["output"], user("q2")])
    assert prompt_text(engine, -1) == prompt_text(engine, -2)


def test_instructions_come_first_and_do_not_carry_over(start):
    engine = engine_for("</think>\n\nOne.")
    server = start(engine, hybrid())
    first = create(server, input="q1", instructions="SPEAK LATIN")
    assert prompt_text(engine).index("SPEAK LATIN") < prompt_text(engine).index("q1")
    create(server, input="q2", previous_response_id=first["id"], instructions="SPEAK GREEK")
    prompt = prompt_text(engine)
    assert "SPEAK LATIN" not in prompt
    assert prompt.index("SPEAK GREEK") < prompt.index("q1")


def test_a_tool_loop_by_previous_response_id(start):
    calls = f"{call_text(city='Paris')}\n{call_text('mcp__weather.ping')}"
    engine = engine_for(f"Hm.</think>\n\n{calls}", "</think>\n\nWarm.")
    server = start(engine, hybrid())
    tools = [WEATHER, NAMESPACE]
    first = create(server, input="weather?", tools=tools)
    _, paris, ping = first["output"]
    results = [
        result(ping["call_id"], "PONG", namespace="mcp__weather", name="ping"),
        result(paris["call_id"], [{"type": "input_text", "text": "20C"}]),
    ]
    last = create(server, input=results, previous_response_id=first["id"], tools=tools)
    assert text_of(last) == "Warm."
    prompt = prompt_text(engine)
    assert prompt.index("<function=get_weather>") < prompt.index("<function=mcp__weather.ping>")
    assert prompt.index("20C") < prompt.index("PONG")


def test_calls_must_be_answered_by_the_next_request(start):
    server = start(engine_for(f"</think>\n\n{call_text(city='Rome')}"), hybrid())
    first = create(server, tools=[WEATHER])
    error = refused(server, input="never mind", previous_response_id=first["id"])
    assert (error["code"], error["param"]) == ("invalid_tool_history", "input[0]")


def test_input_may_be_missing_where_the_parent_has_a_query(start):
    engine = engine_for("thinking", "</think>\n\nYes.")
    server = start(engine, hybrid())
    first = create(server, input="q1", max_output_tokens=3)
    for missing in (..., [], "", None):
        second = create(server, input=missing, previous_response_id=first["id"])
        assert text_of(second) == "Yes."
    third = create(server, previous_response_id=second["id"], input="q2")
    assert text_of(third) == "Yes."
    turns = prompt_text(engine).split("<|im_start|>")
    assert [turn.split("\n")[0] for turn in turns[-5:]] == [
        "user",
        "assistant",
        "assistant",
        "user",
        "assistant",
    ]


def test_sessions_go_from_a_stored_root_to_its_children(start):
    engine = engine_for("</think>\n\nOne.")
    server = start(engine, hybrid())
    root = create(server)
    child = create(server, previous_response_id=root["id"])
    create(server, previous_response_id=child["id"], store=False)
    create(server)
    create(server, store=False)
    keys = [(request.session_key, request.publish_session) for request in engine.requests]
    assert keys[0] == keys[1] == (f"response:{root['id']}", True)
    assert keys[2] == (keys[0][0], False)
    assert keys[3][0] not in (None, keys[0][0])
    assert keys[4] == (None, False)
    assert not any("key" in name for name in root if name != "prompt_cache_key")


def test_preserve_thinking_is_inherited_until_a_child_says_otherwise(start):
    engine = engine_for("deep thought</think>\n\nOne.")
    server = start(engine, hybrid())

    def shown(parent, **members):
        made = create(server, input="next", previous_response_id=parent["id"], **members)
        return made, "deep thought" in prompt_text(engine)

    root = create(server, input="q", preserve_thinking=True)
    child, kept = shown(root)
    assert kept
    grandchild, kept = shown(child, chat_template_kwargs={"preserve_thinking": False})
    assert not kept
    _, kept = shown(grandchild)
    assert not kept
    _, kept = shown(child)
    assert kept
    plain = create(server, input="q")
    assert not shown(plain)[1]
    assert shown(plain, preserve_thinking=True)[1]


def test_the_server_default_of_preserve_thinking(start):
    engine = engine_for("deep thought</think>\n\nOne.")
    server = start(engine, hybrid(), preserve_thinking=True)
    root = create(server)
    create(server, previous_response_id=root["id"])
    assert "deep thought" in prompt_text(engine)


def test_the_oldest_responses_make_room(start):
    server = start(engine_for("x"), hybrid(), response_store_max_records=2)
    made = [create(server, max_output_tokens=1) for _ in range(3)]
    gone(server.http.get(f"{RESPONSES}/{made[0]['id']}"))
    assert server.http.get(f"{RESPONSES}/{made[2]['id']}").status_code == 200


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_response_beyond_the_store_fails(start, is_stream):
    """The input alone would fit; with the body that repeats the instructions it does not."""
    server = start(engine_for("x"), hybrid(), response_store_max_mib=1)
    big = "y" * (1 << 20)
    metadata = {"instructions": "", "prompt_cache_key": big}
    if not is_stream:
        error = refused(server, max_output_tokens=1, **metadata)
        assert (error["code"], error["param"]) == ("response_store_capacity_exceeded", "store")
        assert create(server, max_output_tokens=1, store=False, **metadata)
        return
    events = stream(server, max_output_tokens=1, store=False, **metadata)
    assert events[-1]["type"] == "response.incomplete"
    answer = server.http.post(
        RESPONSES,
        json={"model": "fake-model", "input": "hi", "max_output_tokens": 1, "stream": True, **metadata},
    )
    assert answer.text.count("event: response.failed") == 1
    assert '"code":"response_store_capacity_exceeded"' in answer.text


def test_an_input_beyond_the_store_is_refused_before_it_runs(start):
    engine = FakeEngine()
    server = start(engine, hybrid(), response_store_max_mib=1)
    error = refused(server, input=[user("a", id="m", phase="p" * (1 << 20))])
    assert error["code"] == "response_store_capacity_exceeded"
    assert not engine.requests


def test_cancel_and_compact_say_why_not(start):
    server = start(engine_for("x"), hybrid())
    made = create(server, max_output_tokens=1)
    error = server.http.post(f"{RESPONSES}/{made['id']}/cancel").json()["error"]
    assert (error["code"], error["param"]) == ("background_not_supported", "background")
    answer = server.http.post(f"{RESPONSES}/compact", json={"model": "fake-model", "input": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "compaction_not_supported")


def test_a_chain_of_200_is_rebuilt_in_linear_time(monkeypatch):
    """Counted, not timed: a step of the chain is read once, and each of its Items once."""
    store = ResponseStore(max_records=1024, max_bytes=1 << 30)
    last = None
    for number in range(200):
        builder = ResponsesBuilder(context(f"{number}-"), store)
        builder.prepare(body(input=f"q{number}", previous_response_id=last))
        finished = Finished(FinishReason.STOP, Usage(1, 0, 1, 0), Timings(), OutputSummary())
        admitted = Admitted(1, 0, 0.0)
        last = builder.format_response(Completion([TextSegment("content", ["ok"])], admitted, finished))["id"]
    loads = Counter()
    monkeypatch.setattr(responses, "parse_json", loads.count)
    prepared = ResponsesBuilder(context("last"), store).prepare(body(input="now", previous_response_id=last))
    assert loads.calls == 400
    assert len(prepared.conversation.turns) == 401
    assert prepared.settings.session_key == "response:0-resp_1"
    assert store.num_bytes < 200 * 2000


class Counter:
    def __init__(self):
        self.calls = 0

    def count(self, raw):
        self.calls += 1
        return json.loads(raw)


def context(name):
    numbers = count(1)
    return RequestContext(
        request_id="req",
        created=0,
        new_id=lambda prefix: f"{name}{prefix}{next(numbers)}",
        new_seed=lambda: 0,
        model_id="fake-model",
        info=INFO,
        frontend=hybrid(),
        options=ServeOptions(),
    )
