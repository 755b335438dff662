"""Input Items: the accepted forms and their prompts, and every refusal with the member it names."""

from tests.server.responses import MARK, call, create, message, reasoning, refused, result, user
from tests.server.scripted import engine_for, hybrid, prompt_text


def prompt_of(server, items, **members) -> str:
    create(server, input=items, max_output_tokens=1, **members)
    return prompt_text(server.resident.model().engine)


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
