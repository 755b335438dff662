"""Calls and their results in a Messages history: their order in the prompt, and what is refused."""

import pytest

from tests.server.blocks import assistant, prompts_of, result, text, tool_use
from tests.server.scripted import prompt_text
from tests.server.test_messages_basics import MESSAGES, WEATHER, refused, user


@pytest.fixture(scope="module")
def script():
    return "ok"


@pytest.fixture
def prompt(server, engine):
    return prompts_of(server, engine)


def test_messages_tool_history(prompt):
    shown = prompt(
        [
            user("a"),
            assistant(text("let me see"), tool_use("t1", city="Paris", days=3)),
            user([result("t1", [text("20"), text("C")]), text("and?")]),
        ],
        tools=[WEATHER],
    )
    call = (
        "let me see\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call><|im_end|>\n"
    )
    assert call in shown
    assert "<tool_response>\n20C\n</tool_response><|im_end|>\n<|im_start|>user\nand?<|im_end|>" in shown


def test_messages_results_are_put_in_call_order(prompt):
    calls = assistant(tool_use("t1", city="Paris"), tool_use("t2", city="Rome"))
    ordered = prompt([user("a"), calls, user([result("t1", "one"), result("t2", "two")])])
    assert ordered.index("one") < ordered.index("two")
    assert prompt([user("a"), calls, user([result("t2", "two"), result("t1", "one")])]) == ordered
    assert prompt([user("a"), calls, user([result("t2", "two")]), user([result("t1", "one")])]) == ordered


def test_messages_is_error_is_marked_in_the_prompt(prompt):
    history = [user("a"), assistant(tool_use()), user([result(is_error=True)])]
    assert "<tool_response>\nis_error: true\n20C\n</tool_response>" in prompt(history)
    assert "is_error" not in prompt([*history[:2], user([result(is_error=False)])])


@pytest.mark.parametrize("content", ["", None, [], [text("")]])
def test_messages_an_empty_result_is_a_result(prompt, content):
    assert "<tool_response>\n\n</tool_response>" in prompt(
        [user("a"), assistant(tool_use()), user([result(content=content)])]
    )


def test_messages_a_history_may_begin_with_results(prompt):
    """Even one that is nothing else."""
    opening = "<|im_start|>user\n<tool_response>\n20C\n</tool_response><|im_end|>\n<|im_start|>"
    assert prompt([user([result("elsewhere")])]).startswith(opening + "assistant")
    assert prompt([user([result("elsewhere"), text("continue")])]).startswith(opening + "user\ncontinue")
    assert prompt([user([result("x")]), assistant(text("ok")), user("b")]).startswith(opening + "assistant")


@pytest.mark.parametrize(
    ("messages", "field", "said"),
    [
        (
            [user("a"), assistant(tool_use("t1"), tool_use("t2")), user([result("t1")])],
            "messages[2]",
            "none for t2",
        ),
        ([user("a"), assistant(tool_use("t1")), user("b")], "messages[2]", "none for t1"),
        (
            [user("a"), assistant(tool_use("t1")), user([result("t1"), result("t9")])],
            "messages[2]",
            "tool_result for t9",
        ),
        (
            [user("a"), assistant(tool_use("t1")), user([text("x"), result("t1")])],
            "messages[2].content[1]",
            "results come first",
        ),
        (
            [user("a"), assistant(tool_use("t1")), user([result("t1"), result("t1")])],
            "messages[2]",
            "two tool_result",
        ),
        ([user("a"), assistant(text("b")), user([result("t1")])], "messages[2]", "tool_result for t1"),
        (
            [user("a"), assistant(tool_use("t1"), tool_use("t1")), user([result("t1")])],
            "messages[1]",
            "repeat the id",
        ),
        (
            [user("a"), assistant(tool_use("t1")), {"role": "system", "content": "s"}],
            "messages[2]",
            "none for t1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_messages_every_call_has_exactly_one_leading_result(server, messages, field, said):
    error = refused(server, messages=messages)
    assert error["code"] == "invalid_tool_history"
    assert error["message"].startswith(f"{field} ")
    assert said in error["message"]


def test_messages_tool_definitions_keep_order_and_spelling(server, engine):
    raw = (
        b'{"model": "m", "max_tokens": 1, "thinking": {"type": "disabled"}, "messages": [{"role": "user",'
        b' "content": "x"}], "tools": [{"description": "D", "name": "f", "cache_control": null,'
        b' "input_schema": {"type": "object", "properties": {"z": {"minimum": 1.0}, "a": {}}},'
        b' "input_examples": [{"z": 1e2}]}]}'
    )
    assert server.http.post(MESSAGES, content=raw).status_code == 200
    definition = (
        '{"type": "function", "function": {"description": "D", "name": "f", "parameters": {"type": "object",'
        ' "properties": {"z": {"minimum": 1.0}, "a": {}}}, "input_examples": [{"z": 1e2}]}}'
    )
    assert definition in prompt_text(engine)


def test_messages_call_inputs_keep_order_and_spelling(server, engine):
    raw = (
        b'{"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"},'
        b' {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f",'
        b' "input": {"z": [1.0, 1e2], "a": "s"}}]},'
        b' {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]}'
    )
    assert server.http.post(MESSAGES, content=raw).status_code == 200
    assert "<parameter=z>\n[1.0, 1e2]\n</parameter>\n<parameter=a>\ns\n</parameter>" in prompt_text(engine)
