"""Input Items: the accepted forms and their prompts, and every refusal with the member it names."""

from dataclasses import replace

import pytest

from tests.server.fake_engine import INFO, FakeEngine
from tests.server.fake_frontend import ByteFrontend
from tests.server.harness import LiveServer
from tests.server.responses import call, create, message, reasoning, refused, result, user
from tests.server.scripted import engine_for, hybrid, prompt_text

PNG = "data:image/png;base64,AAAA"
MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}


@pytest.fixture(scope="module")
def server():
    engine = FakeEngine(max_concurrency=4)
    with LiveServer(engine, hybrid()) as live:
        live.engine = engine
        yield live
    engine.close()


def prompt_of(server, items, **members) -> str:
    create(server, input=items, max_output_tokens=1, **members)
    return prompt_text(server.engine)


def test_a_string_is_one_user_message(server):
    parts = [{"type": "input_text", "text": "alpha be"}, {"type": "input_text", "text": "ta"}]
    assert prompt_of(server, "alpha beta") == prompt_of(server, [user(parts)])
    assert prompt_of(server, "alpha beta") == prompt_of(server, [{"role": "user", "content": "alpha beta"}])


def test_messages_keep_their_places(server):
    items = [
        message("system", "S"),
        user("A"),
        message("developer", "D"),
        message("assistant", "B"),
        user("C"),
    ]
    turns = [turn.split() for turn in prompt_of(server, items).split("<|im_start|>")[1:-1]]
    turns = [[words[0], words[-1]] for words in turns]
    assert turns == [
        ["system", "S<|im_end|>"],
        ["user", "A<|im_end|>"],
        ["system", "D<|im_end|>"],
        ["assistant", "B<|im_end|>"],
        ["user", "C<|im_end|>"],
    ]


def test_several_developer_messages_and_instructions(server):
    items = [message("developer", "one"), message("developer", "two"), user()]
    prompt = prompt_of(server, items, instructions="zero")
    assert prompt.index("zero") < prompt.index("one") < prompt.index("two")


def test_refusals_and_output_text_are_assistant_history(server):
    parts = [
        {"type": "output_text", "text": "I ", "annotations": []},
        {"type": "refusal", "refusal": "won't."},
    ]
    assert "assistant\nI won't.<|im_end|>" in prompt_of(server, [user(), message("assistant", parts), user()])


def test_status_and_phase_are_accepted_without_effect(server):
    plain = [user(), message("assistant", "b"), user()]
    told = [user(), message("assistant", "b", status="incomplete", phase="commentary"), user()]
    assert prompt_of(server, plain) == prompt_of(server, told)


def test_contiguous_assistant_items_are_one_turn(server):
    items = [
        user(),
        reasoning("r1 "),
        reasoning("r2"),
        message("assistant", "m1 "),
        message("assistant", "m2"),
        call("a", "f", '{"x": 1}'),
        call("b", "g", "{}"),
        result("b", "second"),
        result("a", "first"),
        user("next"),
    ]
    prompt = prompt_of(server, items, preserve_thinking=True)
    assert prompt.count("<|im_start|>assistant") == 2
    assert "r1 r2" in prompt
    assert "m1 m2" in prompt
    assert prompt.index("<function=f>") < prompt.index("<function=g>")
    assert prompt.index("first") < prompt.index("second")


def test_a_reasoning_only_turn_is_retained(server):
    items = [user(), reasoning("half a thought"), user("go on")]
    assert "half a thought" in prompt_of(server, items, preserve_thinking=True)


def test_a_result_and_a_call_may_alternate(server):
    items = [
        user(),
        call("a"),
        result("a", "one"),
        call("b"),
        result("b", "two"),
        message("assistant", "ok"),
        user(),
    ]
    prompt = prompt_of(server, items)
    assert prompt.index("one") < prompt.index("two") < prompt.index("ok")


def test_results_as_parts(server):
    parts = [{"type": "input_text", "text": "20"}, {"type": "input_text", "text": "C", **MARK}]
    assert "20C" in prompt_of(server, [user(), call(), result(output=parts)])


def test_arguments_keep_their_order_and_spelling(server):
    arguments = '{"z": 1.50, "a": {"k": 1e2}, "m": "x"}'
    prompt = prompt_of(server, [user(), call(arguments=arguments), result(), user()])
    assert prompt.index("=z>") < prompt.index("=a>") < prompt.index("=m>")
    assert "1.50" in prompt
    assert '{"k": 1e2}' in prompt


def test_namespaced_calls_are_replayed_under_their_whole_name(server):
    items = [
        user(),
        call(namespace="mcp__weather", name="get_current", arguments="{}"),
        result(namespace="mcp__weather", name="get_current"),
    ]
    assert "<function=mcp__weather.get_current>" in prompt_of(server, items)


def test_what_clients_echo_is_accepted(server):
    items = [
        user(id="msg_1"),
        reasoning("r", id="rs_1", encrypted_content=None, status=None),
        message(
            "assistant",
            [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}],
            id="msg_2",
            status="completed",
        ),
        call(id="fc_1", status="completed"),
        result(id=None, status=None, name=None),
        user(id=""),
    ]
    assert prompt_of(server, items)


def test_sealed_reasoning_stands_for_its_text(start):
    engine = engine_for("secret thought</think>\n\nYes.")
    server = start(engine, hybrid())
    first = create(server, include=["reasoning.encrypted_content"], store=False)
    thought, said = first["output"]
    bare = {key: thought[key] for key in ("type", "id", "summary", "encrypted_content")}
    create(server, input=[user("hi"), thought, said, user("on")], preserve_thinking=True)
    for content in ({}, {"content": None}, {"content": []}):
        create(server, input=[user("hi"), {**bare, **content}, said, user("on")], preserve_thinking=True)
        assert prompt_text(engine) == prompt_text(engine, 1)
    assert "secret thought" in prompt_text(engine)


def test_stored_reasoning_may_come_back_without_its_text(start):
    """LangChain's streams lose it."""
    engine = engine_for("Hm.</think>\n\nYes.")
    server = start(engine, hybrid())
    thought, said = create(server)["output"]
    bare = {"type": "reasoning", "id": thought["id"], "summary": [], "content": [], "status": "in_progress"}
    create(server, input=[user("hi"), bare, said, user("on")], preserve_thinking=True)
    assert "Hm." in prompt_text(engine)
    error = refused(server, input=[user("hi"), {**bare, "id": said["id"]}, user("on")])
    assert (error["code"], error["param"]) == ("unsupported_feature", "input[1].content")


def test_the_output_of_a_response_can_be_sent_back(start):
    engine = engine_for("Hm.</think>\n\nYes.")
    server = start(engine, hybrid())
    first = create(server)
    second = create(server, input=[user("hi"), *first["output"], user("on")])
    items = server.http.get(f"/v1/responses/{second['id']}/input_items?order=asc").json()["data"]
    assert [item["id"] for item in items[1:3]] == [item["id"] for item in first["output"]]


def test_items_of_stored_responses_may_be_referred_to(start):
    engine = engine_for("Hm.</think>\n\nYes.")
    server = start(engine, hybrid())
    first = create(server)
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    second = create(server, input=[user("hi"), *references, user("on")])
    create(server, input=[user("hi"), *({"id": each["id"]} for each in references), user("on")])
    create(server, input=[user("hi"), *first["output"], user("on")])
    assert prompt_text(engine, 1) == prompt_text(engine, 2) == prompt_text(engine, 3)
    listed = server.http.get(f"/v1/responses/{second['id']}/input_items?order=asc").json()["data"]
    assert listed[1:3] == first["output"]
    twice = refused(server, input=[user(), references[0], references[0]])
    assert (twice["code"], twice["param"]) == ("duplicate_item_id", "input[2].id")
    again = refused(server, input=[user(), references[0]], previous_response_id=first["id"])
    assert again["code"] == "duplicate_item_id"
    server.http.delete(f"/v1/responses/{first['id']}")
    for lost in (references[0], {"id": "msg_nowhere"}):
        error = refused(server, input=[user(), lost])
        assert (error["code"], error["param"]) == ("item_not_found", "input[1].id")


BAD_FORM = [
    ([5], "input[0]"),
    ([{}], "input[0].type"),
    ([{"type": 5}], "input[0].type"),
    ([{"type": "item_reference"}], "input[0].id"),
    ([{"type": "item_reference", "id": ""}], "input[0].id"),
    ([{"id": None}], "input[0].id"),
    ([message("robot")], "input[0].role"),
    ([{"type": "message", "content": "x"}], "input[0].role"),
    ([{"role": "user"}], "input[0].content"),
    ([user(None)], "input[0].content"),
    ([user({"type": "input_text", "text": "x"})], "input[0].content"),
    ([user([5])], "input[0].content[0]"),
    ([user([{"text": "x"}])], "input[0].content[0].type"),
    ([user([{"type": "input_text"}])], "input[0].content[0].text"),
    ([user([{"type": "input_text", "text": 5}])], "input[0].content[0].text"),
    ([user([{"type": "output_text", "text": "x"}])], "input[0].content[0].type"),
    ([user([{"type": "refusal", "refusal": "x"}])], "input[0].content[0].type"),
    ([user([{"type": "text", "text": "x"}])], "input[0].content[0].type"),
    ([message("assistant", [{"type": "refusal"}])], "input[0].content[0].refusal"),
    ([user(status=5)], "input[0].status"),
    ([user(phase=5)], "input[0].phase"),
    ([user(id=5)], "input[0].id"),
    (
        [user([{"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"mode": "x"}}])],
        "input[0].content[0].prompt_cache_breakpoint.mode",
    ),
    ([user(), reasoning(content="x")], "input[1].content"),
    ([user(), reasoning(content=[{"type": "summary_text", "text": "x"}])], "input[1].content[0].type"),
    ([user(), reasoning(content=[{"type": "reasoning_text"}])], "input[1].content[0].text"),
    ([user(), reasoning(summary="x")], "input[1].summary"),
    ([user(), reasoning(encrypted_content=5)], "input[1].encrypted_content"),
    ([user(), call(call_id=None)], "input[1].call_id"),
    ([user(), call(call_id="")], "input[1].call_id"),
    ([user(), call(name=None)], "input[1].name"),
    ([user(), call(name="")], "input[1].name"),
    ([user(), call(namespace=5)], "input[1].namespace"),
    ([user(), call(arguments=None)], "input[1].arguments"),
    ([user(), call(arguments={})], "input[1].arguments"),
    ([user(), call(arguments="")], "input[1].arguments"),
    ([user(), call(arguments="[1]")], "input[1].arguments"),
    ([user(), call(arguments="{nope")], "input[1].arguments"),
    ([user(), call(arguments="[" * 5000)], "input[1].arguments"),
    ([user(), call(), result(call_id=None)], "input[2].call_id"),
    ([user(), call(), result(output=None)], "input[2].output"),
    ([user(), call(), result(output=5)], "input[2].output"),
    ([user(), call(), result(output=[])], "input[2].output"),
    ([user(), call(), result(output=[{"type": "input_text"}])], "input[2].output[0].text"),
]


@pytest.mark.parametrize(("items", "field"), BAD_FORM, ids=str)
def test_malformed_items_name_their_member(server, items, field):
    error = refused(server, input=items)
    assert (error["code"], error["param"]) == ("invalid_value", field)


UNSUPPORTED = [
    ([{"type": "web_search_call", "id": "ws"}], "input[0].type"),
    ([{"type": "custom_tool_call_output", "call_id": "c", "output": "x"}], "input[0].type"),
    ([{"type": "compaction", "encrypted_content": "x"}], "input[0].type"),
    ([user([{"type": "input_file", "file_id": "f"}])], "input[0].content[0].type"),
    ([user([{"type": "input_audio", "input_audio": {}}])], "input[0].content[0].type"),
    ([message("system", [{"type": "input_image", "image_url": PNG}])], "input[0].content[0].type"),
    ([user(), {"type": "reasoning", "summary": []}], "input[1].content"),
    ([user(), reasoning(content=[], encrypted_content="gAAAAA")], "input[1].content"),
    ([user(), reasoning(content=None, summary=[{"type": "summary_text", "text": "s"}])], "input[1].content"),
    ([user(), call(status="in_progress")], "input[1].status"),
    ([user(), call(status="incomplete")], "input[1].status"),
    ([user(), call(), result(status="incomplete")], "input[2].status"),
    ([user(), call(), result(output=[{"type": "input_file", "file_id": "f"}])], "input[2].output[0].type"),
]


@pytest.mark.parametrize(("items", "field"), UNSUPPORTED, ids=str)
def test_unsupported_items_are_named(server, items, field):
    error = refused(server, input=items)
    assert (error["code"], error["param"]) == ("unsupported_feature", field)


WRONG_ORDER = [
    ([user(), message("assistant"), reasoning()], "input[2]"),
    ([user(), call(), reasoning(), result()], "input[2]"),
    ([user(), call(), message("assistant"), result()], "input[2]"),
]


@pytest.mark.parametrize(("items", "field"), WRONG_ORDER, ids=str)
def test_an_order_that_no_turn_can_show_is_refused(server, items, field):
    error = refused(server, input=items)
    assert (error["code"], error["param"]) == ("invalid_assistant_history", field)


WRONG_TOOLS = [
    ([user(), result("nobody")], "input[1].call_id"),
    ([result("nobody")], "input[0].call_id"),
    ([user(), call("a"), result("b")], "input[2].call_id"),
    ([user(), call("a"), call("b"), result("a"), result("a")], "input[4].call_id"),
    ([user(), call("a"), result("a"), result("a")], "input[3].call_id"),
    ([user(), call("a"), call("a"), result("a")], "input[2].call_id"),
    ([user(), call("a"), call("b"), result("b"), user()], "input[4]"),
    ([user(), call("a"), call("b"), result("a"), message("assistant")], "input[4]"),
    ([user(), call("a"), user(), result("a")], "input[2]"),
    ([user(), call("a")], "input"),
    ([user(), call("a"), call("b"), result("a")], "input"),
    ([user(), call("a"), result("a"), user(), result("a")], "input[4].call_id"),
    ([user(), call("a", "f"), result("a", name="g")], "input[2].name"),
    ([user(), call("a", "f"), result("a", namespace="n")], "input[2].namespace"),
    ([user(), call("a", "f", namespace="n"), result("a", namespace="m")], "input[2].namespace"),
]


@pytest.mark.parametrize(("items", "field"), WRONG_TOOLS, ids=str)
def test_results_that_do_not_fit_their_calls_are_refused(server, items, field):
    error = refused(server, input=items)
    assert (error["code"], error["param"]) == ("invalid_tool_history", field)


def test_duplicate_ids_are_refused_also_across_a_chain(server):
    error = refused(server, input=[user(id="m"), message("assistant", id="m")])
    assert (error["code"], error["param"]) == ("duplicate_item_id", "input[1].id")
    first = create(server, input=[user(id="mine")], max_output_tokens=1)
    for taken in ("mine", first["output"][0]["id"]):
        error = refused(server, input=[user(id=taken)], previous_response_id=first["id"])
        assert (error["code"], error["param"]) == ("duplicate_item_id", "input[0].id")


@pytest.mark.parametrize("kind", ["input_image", "input_video"])
def test_media_without_vision_is_refused(server, kind):
    part = {"type": kind, f"{kind.removeprefix('input_')}_url": PNG}
    assert refused(server, input=[user([part])])["code"] == "vision_disabled"
    if kind == "input_image":
        error = refused(server, input=[user(), call(), result(output=[part])])
        assert (error["code"], error["param"]) == ("vision_disabled", "input[2].output[0]")


@pytest.fixture(scope="module")
def seeing():
    """Form only: the text front of these tests renders no media."""
    engine = FakeEngine(info=replace(INFO, has_vision=True))
    with LiveServer(engine, ByteFrontend()) as live:
        yield live
    engine.close()


@pytest.mark.parametrize(
    "items",
    [
        [user([{"type": "input_image", "image_url": PNG, "detail": "auto", **MARK}])],
        [user([{"type": "input_video", "video_url": "https://example.com/v.mp4"}])],
        [user(), message("assistant", [{"type": "input_image", "image_url": PNG}]), user()],
        [user(), call(), result(output=[{"type": "input_image", "image_url": PNG}])],
    ],
    ids=str,
)
def test_media_parts_where_vision_exists(seeing, items):
    assert create(seeing, input=items, max_output_tokens=1)


@pytest.mark.parametrize(
    ("part", "code", "field"),
    [
        ({"type": "input_image", "file_id": "f"}, "unsupported_feature", "file_id"),
        ({"type": "input_image", "image_url": PNG, "detail": "high"}, "unsupported_feature", "detail"),
        ({"type": "input_image"}, "invalid_value", "image_url"),
        ({"type": "input_image", "image_url": {"url": PNG}}, "invalid_value", "image_url"),
        ({"type": "input_video"}, "invalid_value", "video_url"),
    ],
    ids=str,
)
def test_wrong_media_parts_are_named(seeing, part, code, field):
    error = refused(seeing, input=[user([part])])
    assert (error["code"], error["param"]) == (code, f"input[0].content[0].{field}")
