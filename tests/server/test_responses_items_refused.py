"""Items that are malformed, unsupported, or that no conversation can hold in their order."""

import pytest

from tests.server.responses import PNG, call, create, message, reasoning, refused, result, user

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
