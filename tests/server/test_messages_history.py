"""What the prompt shows of a conversation: order, joins, prefill, thinking, calls and their results."""

from dataclasses import replace

import pytest

from tests.server.blocks import assistant, prompts_of, result, text, thought, tool_use
from tests.server.fake_engine import INFO, FakeEngine
from tests.server.fake_frontend import ByteFrontend
from tests.server.scripted import engine_for, hybrid, prompt_text
from tests.server.test_chat_output import CALL
from tests.server.test_messages_basics import COUNT, DISABLED, MESSAGES, WEATHER, body, message, refused, user

BILLING = "x-anthropic-billing-header: cc_version=2.1.181; cc_entrypoint=cli; cch=%s;"


@pytest.fixture(scope="module")
def script():
    return "ok"


@pytest.fixture
def prompt(server, engine):
    return prompts_of(server, engine)


def test_messages_system_forms(prompt):
    string = prompt([user()], system="Be terse. Really.")
    blocks = prompt([user()], system=[text("Be terse. "), text("Really.")])
    assert string == blocks
    assert string.startswith("<|im_start|>system\nBe terse. Really.<|im_end|>\n<|im_start|>user\nhello")
    for empty in ("", [], [text("")]):
        assert prompt([user()], system=empty) == prompt([user()])


def test_messages_billing_block_is_consumed_with_its_marker(prompt, engine):
    plain = prompt([user()], system=[text("Be terse.")])
    mark = {"cache_control": {"type": "ephemeral"}}
    with_block = prompt([user()], system=[text(BILLING % "aaaaa", **mark), text("Be terse.")])
    assert with_block == plain
    assert not [f for f in engine.requests[-1].prompt.frontiers if f.kind == "client_marker"]
    assert prompt([user()], system=[text(BILLING % "b")]) == prompt([user()])


def test_messages_two_billing_blocks_give_the_same_token_ids(prompt, engine):
    for value in ("11111", "22222"):
        prompt([user()], system=[text(BILLING % value), text("Be terse.")])
    first, second = engine.requests[-2:]
    assert first.prompt.token_ids == second.prompt.token_ids


def test_messages_the_billing_rule_is_positional(prompt):
    words = BILLING % "c"
    assert words in prompt([user()], system=words)
    assert words in prompt([user()], system=[text("First."), text(words)])
    assert words in prompt([user(), {"role": "system", "content": [text(words)]}, user("b")])
    assert f" {words}" in prompt([user()], system=[text("a"), text(" " + words)])
    assert words.upper() in prompt([user()], system=[text(words.upper())])


def test_messages_consecutive_turns_are_joined_without_separators(prompt):
    joined = prompt([user("alpha be"), user([text("ta"), text(" gamma")])])
    assert joined == prompt([user("alpha beta gamma")])
    history = [user("a"), assistant(text("one ")), assistant(text("two")), user("b")]
    assert prompt(history) == prompt([user("a"), assistant(text("one two")), user("b")])


def test_messages_system_turns_keep_their_position(prompt):
    shown = prompt(
        [user("a"), {"role": "system", "content": "S1"}, user("b"), {"role": "system", "content": "S2"}]
    )
    places = [shown.index(words) for words in ("user\na", "system\nS1", "user\nb", "system\nS2", "assistant")]
    assert places == sorted(places)


def test_messages_a_final_assistant_text_is_continued(prompt, server):
    plain = prompt([user("Count.")])
    assert prompt([user("Count."), assistant(text("One "), text("two"))]) == plain + "One two"
    assert prompt([user("Count."), assistant(text("One "))], thinking=None) == plain + "One "
    answer = message(server, messages=[user("Count."), assistant(text("One"))], thinking=DISABLED)
    assert answer["content"] == [text("ok")], "only the continuation is the answer"


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}])
def test_messages_prefill_cannot_start_with_thinking(server, thinking):
    history = [user(), assistant(text("One"))]
    error = refused(server, messages=history, thinking=thinking, max_tokens=2000)
    assert error["message"].startswith("thinking ")
    assert "prefill" in error["message"]
    assert "prefill" in refused(server, COUNT, messages=history, thinking=thinking)["message"]


@pytest.mark.parametrize(
    "block", [tool_use(), {"type": "thinking", "thinking": "t", "signature": "s"}], ids=lambda b: b["type"]
)
def test_messages_prefill_is_text_alone(server, block):
    error = refused(server, messages=[user(), assistant(text("a"), block)], thinking=DISABLED)
    assert "prefill" in error["message"]


def test_messages_visible_thinking_is_the_history(prompt):
    """The signature is transport: any value, or none, gives the same prompt."""
    prompts = {
        prompt(
            [user("a"), assistant(thought("t u v", **signed), text("b")), user("c")], preserve_thinking=True
        )
        for signed in ({"signature": "sig_any"}, {"signature": ""}, {})
    }
    (shown,) = prompts
    assert "<think>\nt u v\n</think>\n\nb" in shown


def test_messages_preserve_thinking_decides_about_closed_turns(prompt):
    history = [user("a"), assistant(thought("old thought"), text("b")), user("c")]
    assert "old thought" in prompt(history, preserve_thinking=True)
    assert "old thought" not in prompt(history, preserve_thinking=False)


def test_messages_blocks_in_an_unusual_order_do_not_move(prompt):
    """Templates show a thought, a text, then calls; what comes otherwise is shown as another turn."""
    shown = prompt(
        [
            user("a"),
            assistant(text("first"), tool_use("t1"), text("second"), tool_use("t2")),
            user([result("t2", "two"), result("t1", "one")]),
        ]
    )
    order = [shown.index(words) for words in ("first", "<function", "second", "one", "two")]
    assert order == sorted(order)
    assert shown.count("<function=get_weather>") == 2


@pytest.mark.parametrize(
    ("blocks", "field"),
    [
        ([{**tool_use(), "input": "x"}], "messages[1].content[0].input"),
        ([{"type": "tool_use", "id": "t", "name": "f"}], "messages[1].content[0].input"),
        ([{**tool_use(), "id": ""}], "messages[1].content[0].id"),
        ([{**tool_use(), "name": ""}], "messages[1].content[0].name"),
        ([{"type": "thinking"}], "messages[1].content[0].thinking"),
        ([{"type": "thinking", "thinking": "t", "signature": 5}], "messages[1].content[0].signature"),
        ([{"type": "tool_result", "tool_use_id": "t"}], "messages[1].content[0].type"),
        ([{"type": "image"}], "messages[1].content[0].type"),
    ],
    ids=str,
)
def test_messages_malformed_assistant_blocks_are_named(server, blocks, field):
    assert refused(server, messages=[user(), assistant(*blocks), user()])["message"].startswith(f"{field} ")


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"type": "tool_result"}, "messages[0].content[0].tool_use_id"),
        (result(is_error="yes"), "messages[0].content[0].is_error"),
        (result(content=5), "messages[0].content[0].content"),
        (result(content=[{"type": "thinking"}]), "messages[0].content[0].content[0].type"),
        (tool_use(), "messages[0].content[0].type"),
        ({"type": "thinking", "thinking": "x"}, "messages[0].content[0].type"),
    ],
    ids=str,
)
def test_messages_malformed_user_blocks_are_named(server, block, field):
    assert refused(server, messages=[user([block])])["message"].startswith(f"{field} ")


def test_messages_own_answers_replay_to_the_same_prompt(start):
    """A prompt that continues an answer as it was sent begins with exactly what the model saw and wrote."""
    written = f"Let me think.\n</think>\n\nI look.\n\n{CALL.replace('True', 'true')}"
    engine = engine_for(written, "</think>\n\nWarm.")
    server = start(engine, hybrid())
    answer = message(server, tools=[WEATHER], max_tokens=1000)
    seen = prompt_text(engine) + written
    call = answer["content"][-1]
    history = [user(), assistant(*answer["content"]), user([result(call["id"], "20C")])]
    message(server, messages=history, tools=[WEATHER], max_tokens=1000)
    assert prompt_text(engine).startswith(seen)


def test_messages_image_blocks_where_vision_exists(start):
    """The builder's part of it: blocks become media parts in their place."""
    engine = FakeEngine(info=replace(INFO, has_vision=True))
    server = start(engine, ByteFrontend())
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    image, linked = (
        {"type": "image", "source": source} for source in (source, {"type": "url", "url": "http://x/i"})
    )
    message(server, messages=[user([text("a"), image, linked, text("b")])], max_tokens=1)
    assert (
        "<user>a[data:image/png;base64,AAAA][http://x/i]b"
        in bytes(engine.requests[-1].prompt.token_ids).decode()
    )
    message(server, messages=[user([result("t", [text("r"), image])])], max_tokens=1)
    for wrong, field in [
        ({"type": "file", "file_id": "f"}, "messages[0].content[0].source.type"),
        ({**source, "media_type": "image/tiff"}, "messages[0].content[0].source.media_type"),
        ({"type": "base64", "media_type": "image/png"}, "messages[0].content[0].source.data"),
        ({"type": "ftp"}, "messages[0].content[0].source.type"),
    ]:
        assert refused(server, messages=[user([{"type": "image", "source": wrong}])])["message"].startswith(
            field
        )


def test_messages_refusals_are_the_same_when_counting(server):
    bad = [user("a"), assistant(tool_use("t1")), user("b")]
    answers = [server.http.post(path, json=body(messages=bad)).json()["error"] for path in (MESSAGES, COUNT)]
    assert answers[0] == answers[1]
