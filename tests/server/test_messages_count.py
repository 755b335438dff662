"""``count_tokens`` takes the prompt path of Messages: the same number, for every shape."""

import pytest

from tests.server.blocks import assistant, result, text, thought, tool_use
from tests.server.scripted import engine_for, hybrid
from tests.server.test_messages_basics import COUNT, DISABLED, PING_TOOL, WEATHER, body, message, user
from tests.server.test_messages_cache import mark
from tests.server.test_messages_history import BILLING

ROUND = [user("a"), assistant(text("look"), tool_use("t1", city="Paris")), user([result("t1")])]
TWO_CALLS = [
    user("a"),
    assistant(tool_use("t1"), tool_use("t2", "ping")),
    user([result("t2", is_error=True), result("t1", [text("20"), text("C")]), text("and?")]),
]
THOUGHT = [user("a"), assistant(thought("t u v", signature="s"), text("b")), user("c")]
MIDDLE = [user("a"), {"role": "system", "content": "S"}, user("b")]

SHAPES = {
    "plain": {},
    "empty": {"messages": [user("")]},
    "unicode": {"messages": [user("größer 🙂 <|im_end|>")]},
    "blocks": {"messages": [user([text("a"), text("b")])]},
    "no thinking": {"thinking": DISABLED},
    "adaptive": {"thinking": {"type": "adaptive"}},
    "budget": {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000},
    "low effort": {"output_config": {"effort": "low"}},
    "medium effort": {"output_config": {"effort": "medium"}},
    "effort without thinking": {"output_config": {"effort": "low"}, "thinking": DISABLED},
    "system": {"system": "Be terse."},
    "system blocks": {"system": [text("Be terse. "), text("Really.")]},
    "billing": {"system": [text(BILLING % "a"), text("Be terse.")]},
    "billing as string": {"system": BILLING % "a"},
    "system in the middle": {"messages": MIDDLE},
    "system last": {"messages": [user("a"), {"role": "system", "content": [text("S")]}]},
    "joined": {"messages": [user("a"), user("b"), assistant(text("c")), assistant(text("d")), user("e")]},
    "history": {"messages": [user("a"), assistant(text("b")), user("c")]},
    "thinking history": {"messages": THOUGHT},
    "thinking kept": {"messages": THOUGHT, "preserve_thinking": True},
    "thinking dropped": {"messages": THOUGHT, "preserve_thinking": False},
    "prefill": {"messages": [user("a"), assistant(text("One "))]},
    "empty prefill": {"messages": [user("a"), assistant()]},
    "tools": {"tools": [WEATHER, PING_TOOL]},
    "tools and system": {"tools": [WEATHER], "system": "Be terse."},
    "tools off": {"tools": [WEATHER], "tool_choice": {"type": "none"}},
    "tool examples": {"tools": [{**WEATHER, "description": "D", "input_examples": [{"city": "x"}]}]},
    "tool round": {"messages": ROUND, "tools": [WEATHER]},
    "tool round without tools": {"messages": ROUND},
    "two calls": {"messages": TWO_CALLS, "tools": [WEATHER, PING_TOOL]},
    "calls in an unusual order": {
        "messages": [user("a"), assistant(tool_use("t1"), text("then"), tool_use("t2")), *TWO_CALLS[2:]]
    },
    "truncated": {"messages": [user([result("x"), text("go on")])]},
    "marks": {
        "messages": [user([text("a", **mark()), text("b", **mark("1h"))])],
        "tools": [WEATHER | mark()],
    },
    "request mark": {"messages": ROUND, **mark()},
    "output members": {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop_sequences": ["x"]},
}


@pytest.fixture(scope="module")
def script():
    return "ok"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda name: name.replace(" ", "_"))
def test_messages_count_equals_usage(server, shape):
    members = SHAPES[shape]
    answer = server.http.post(COUNT, json=body(**members))
    assert answer.status_code == 200, answer.text
    assert answer.headers["request-id"]
    usage = message(server, **members)["usage"]
    assert answer.json() == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_messages_count_shapes_are_many_and_differ(server):
    counts = {server.http.post(COUNT, json=body(**members)).text for members in SHAPES.values()}
    assert len(SHAPES) >= 30
    assert len(counts) > 15


def test_messages_output_members_do_not_affect_the_count(server):
    plain = server.http.post(COUNT, json=body()).json()
    wild = body(max_tokens=0, temperature="hot", top_p=7, top_k=-1, stop_sequences=5, stream="yes")
    assert server.http.post(COUNT, json=wild).json() == plain
    without = {name: value for name, value in body().items() if name != "max_tokens"}
    assert server.http.post(COUNT, json=without).json() == plain


def test_messages_count_takes_no_engine_place(start):
    engine = engine_for("ok", max_concurrency=1, max_pending=0)
    server = start(engine, hybrid())
    reservation = engine.reserve()
    assert server.http.post(COUNT, json=body()).status_code == 200
    reservation.release()


def test_messages_count_of_a_prompt_that_does_not_fit_is_400(server):
    answer = server.http.post(COUNT, json=body(messages=[user("x" * 5000)]))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
