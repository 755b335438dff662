"""Messages to prompts: roles, content forms, histories and legacy spellings, seen in the rendered text."""

import pytest

from ninfer_jax.server.protocols.chat_messages import MessageParser
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.prompt_cache import select_writes
from ninfer_jax.text.conversation import HistoryToolCall, MediaPart, TextPart, Turn
from tests.server.scripted import engine_for, hybrid, prompt_text, what_ran
from tests.server.test_chat_basics import CHAT, chat, user


def parse(*messages, has_vision=False, lenient=False):
    return MessageParser(has_vision, Hints(lenient)).parse({"messages": list(messages)})


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(call_id="c1", name="look", arguments='{"a": 1}'):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls, content=None, **more):
    return say("assistant", content, tool_calls=list(calls), **more)


def result(call_id="c1", content="done", **more):
    return say("tool", content, tool_call_id=call_id, **more)


def test_every_role_keeps_its_place():
    turns = parse(say("user", "a"), say("developer", "b"), say("system", "c"), say("assistant", "d"))
    assert [(turn.role, turn.parts) for turn in turns] == [
        ("user", (TextPart("a"),)),
        ("developer", (TextPart("b"),)),
        ("system", (TextPart("c"),)),
        ("assistant", (TextPart("d"),)),
    ]


def test_parts_stay_apart_and_in_order():
    (turn,) = parse(say("user", [{"type": "text", "text": "be"}, {"type": "text", "text": "ta"}]))
    assert turn.parts == (TextPart("be"), TextPart("ta"))


@pytest.mark.parametrize("content", ["", []])
def test_empty_content_is_an_empty_turn(content):
    for role in ("system", "developer", "user", "assistant"):
        assert parse(say(role, content)) == [Turn(role, ())]


def test_refusals_in_parts_and_beside_content():
    parts = [{"type": "refusal", "refusal": "no"}, {"type": "text", "text": "but"}]
    turns = parse(say("assistant", parts), say("assistant", None, refusal="never"))
    assert turns[0].parts == (TextPart("no"), TextPart("but"))
    assert turns[1].parts == (TextPart("never"),)


def test_reasoning_under_both_names():
    for name in ("reasoning_content", "reasoning"):
        assert parse(say("assistant", "x", **{name: "because"}))[0].reasoning == "because"
    assert parse(say("assistant", "x", reasoning_content=None, reasoning="r"))[0].reasoning == "r"


def test_tool_history():
    turns = parse(calling(call()), result(name="look"), say("user", "next"))
    assert turns[0].tool_calls == (HistoryToolCall("c1", "look", {"a": 1}),)
    assert (turns[1].role, turns[1].tool_call_id, turns[1].parts) == ("tool", "c1", (TextPart("done"),))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"b": 1, "a": 2}', ["b", "a"]), ({"b": 1, "a": 2}, ["b", "a"]), ("", []), (" ", []), (None, [])],
)
def test_arguments_keep_their_order(arguments, expected):
    assert list(parse(calling(call(arguments=arguments)))[0].tool_calls[0].arguments) == expected


def test_arguments_keep_their_spelling_into_the_prompt(start):
    engine = engine_for("x")
    arguments = '{"n": 1.50, "e": 1e2, "deep": {"z": [1.0], "a": null}}'
    messages = [*user(), calling(call(arguments=arguments)), result()]
    chat(start(engine, hybrid()), messages=messages, max_tokens=1)
    text = prompt_text(engine)
    assert "<parameter=n>\n1.50\n" in text
    assert "<parameter=e>\n1e2\n" in text
    assert '<parameter=deep>\n{"z": [1.0], "a": null}\n' in text


def test_tool_schemas_keep_order_and_spelling_into_the_prompt(start):
    engine = engine_for("x")
    raw = (
        b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "tools": [{"type": "function",'
        b' "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties":'
        b' {"z": {"minimum": 1.0}, "a": {"const": 1e2}}, "required": []}}}]}'
    )
    assert start(engine, hybrid()).http.post(CHAT, content=raw).status_code == 200
    expected = (
        '{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object",'
        ' "properties": {"z": {"minimum": 1.0}, "a": {"const": 1e2}}, "required": []}}}'
    )
    assert expected in prompt_text(engine)


def test_results_go_in_call_order():
    turns = parse(calling(call("c1"), call("c2")), result("c2", "two"), result("c1", "one"))
    assert [turn.tool_call_id for turn in turns[1:]] == ["c1", "c2"]


def test_results_of_unknown_calls_stay_where_they_are():
    turns = parse(calling(call("c1"), call("c2")), result("c2"), result("c9"))
    assert [turn.tool_call_id for turn in turns[1:]] == ["c2", "c9"]


def test_results_without_their_calls_are_a_cut_history():
    assert parse(result("c1"), say("user", "x"))[0].role == "tool"


def test_legacy_function_history():
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    turns = parse(say("user", "a"), legacy, say("function", "out", name="f"), say("user", "b"))
    assert turns[1].tool_calls[0].name == "f"
    assert turns[2].tool_call_id == turns[1].tool_calls[0].id


def test_replayed_sdk_objects_are_accepted():
    extra = {"annotations": [], "audio": None, "function_call": None, "tool_calls": None, "refusal": None}
    assert parse(say("assistant", "b", id="m1", createdAt=5, **extra)) == [
        Turn("assistant", (TextPart("b"),))
    ]


def test_media_parts_where_vision_exists():
    parts = [
        {"type": "image_url", "image_url": {"url": "https://x/1.png", "detail": "auto"}},
        {"type": "video_url", "video_url": "https://x/2.mp4"},
    ]
    assert parse(say("user", parts), has_vision=True)[0].parts == (
        MediaPart("image", "https://x/1.png"),
        MediaPart("video", "https://x/2.mp4"),
    )
    assert parse(calling(call()), result(content=parts[:1]), has_vision=True)[1].parts[0].kind == "image"


@pytest.mark.parametrize(
    ("message", "param", "code"),
    [
        ({"content": "x"}, "messages[1].role", "invalid_value"),
        (say("robot", "x"), "messages[1].role", "invalid_value"),
        (say(1, "x"), "messages[1].role", "invalid_value"),
        (say("user", 5), "messages[1].content", "invalid_value"),
        (say("user", None), "messages[1].content", "invalid_value"),
        (say("system", None), "messages[1].content", "invalid_value"),
        (say("user", ["x"]), "messages[1].content[0]", "invalid_value"),
        (say("user", [{"text": "x"}]), "messages[1].content[0].type", "invalid_value"),
        (say("user", [{"type": "text"}]), "messages[1].content[0].text", "invalid_value"),
        (say("user", [{"type": "text", "text": 5}]), "messages[1].content[0].text", "invalid_value"),
        (say("user", [{"type": "hologram"}]), "messages[1].content[0].type", "invalid_value"),
        (say("user", [{"type": "refusal", "refusal": "x"}]), "messages[1].content[0].type", "invalid_value"),
        (say("user", [{"type": "input_audio"}]), "messages[1].content[0].type", "unsupported_feature"),
        (say("user", [{"type": "file"}]), "messages[1].content[0].type", "unsupported_feature"),
        (say("system", [{"type": "image_url"}]), "messages[1].content[0].type", "unsupported_feature"),
        (say("user", "x", name="bob"), "messages[1].name", "unsupported_feature"),
        (say("user", "x", name=5), "messages[1].name", "invalid_value"),
        (result(name=["look"]), "messages[1].name", "invalid_value"),
        (say("tool", "x"), "messages[1].tool_call_id", "invalid_value"),
        (say("function", "x"), "messages[1].name", "invalid_value"),
        (say("assistant", "x", reasoning_content=5), "messages[1].reasoning_content", "invalid_value"),
        (say("assistant", "x", tool_calls={}), "messages[1].tool_calls", "invalid_value"),
        (calling({"id": "x"}), "messages[1].tool_calls[0].function", "invalid_value"),
        (calling({"function": {}}), "messages[1].tool_calls[0].id", "invalid_value"),
        (calling({**call(), "type": "custom"}), "messages[1].tool_calls[0].type", "unsupported_feature"),
        (calling(call(name="")), "messages[1].tool_calls[0].function.name", "invalid_value"),
        (calling(call(arguments="{no")), "messages[1].tool_calls[0].function.arguments", "invalid_value"),
        (calling(call(arguments="[1]")), "messages[1].tool_calls[0].function.arguments", "invalid_value"),
        (calling(call(arguments='"x"')), "messages[1].tool_calls[0].function.arguments", "invalid_value"),
        (calling(call(), call()), "messages[1].tool_calls", "invalid_value"),
        (say("assistant", None, audio={"id": "a"}), "messages[1].audio", "unsupported_feature"),
        (
            say("user", [{"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "x"}}]),
            "messages[1].content[0].prompt_cache_breakpoint.mode",
            "invalid_value",
        ),
    ],
    ids=repr,
)
def test_a_wrong_message_is_named(start, message, param, code):
    body = {"messages": [*user(), message], "max_tokens": 1}
    answer = start(engine_for("x"), hybrid()).http.post(CHAT, json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code)


def test_detail_other_than_auto_is_refused():
    part = {"type": "image_url", "image_url": {"url": "https://x/1.png", "detail": "high"}}
    with pytest.raises(Exception, match="detail"):
        parse(say("user", [part]), has_vision=True)


def test_an_empty_name_is_no_name(start):
    server = start(engine_for("x"), hybrid())
    chat(server, messages=[say("user", "x")], max_tokens=1)
    without = what_ran(server)
    chat(server, messages=[say("user", "x", name="")], max_tokens=1)
    assert what_ran(server) == without


def test_a_conversation_without_a_user_is_served_or_refused_clearly(start):
    server = start(engine_for("x"), hybrid())
    answer = server.http.post(CHAT, json={"messages": [say("system", "x")], "max_tokens": 1})
    assert answer.status_code in (200, 400)


def marked(count):
    parts = tuple(TextPart(str(index), breakpoint=True) for index in range(count))
    return [Turn("user", parts)]


@pytest.mark.parametrize(
    ("turns", "implicit", "kept"),
    [
        (marked(6), True, ["2", "3", "4", "5"]),
        (marked(6), False, ["2", "3", "4", "5"]),
        ([*marked(6), Turn("user", (TextPart("end"),))], True, ["3", "4", "5"]),
        ([*marked(6), Turn("user", (TextPart("end"),))], False, ["2", "3", "4", "5"]),
        ([*marked(2), Turn("user", (TextPart("end"),))], True, ["0", "1"]),
        ([], True, []),
    ],
)
def test_the_latest_four_cache_writes_are_kept(turns, implicit, kept):
    selected = select_writes(turns, implicit=implicit)
    assert [part.text for turn in selected for part in turn.parts if part.breakpoint] == kept
    assert [part.text for turn in selected for part in turn.parts] == [
        part.text for turn in turns for part in turn.parts
    ]


def test_cache_marks_do_not_change_the_prompt(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    plain = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    chat(server, max_tokens=1, messages=user(plain))
    chat(server, max_tokens=1, messages=user([{**plain[0], **mark}, plain[1]]))
    assert prompt_text(engine, -1) == prompt_text(engine, -2)
