import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.errors import (
    ContextLengthExceededError,
    CorruptModelError,
    InvalidPromptError,
    InvalidRequestError,
    RequestError,
    UnsupportedFeatureError,
)
from ninfer_jax.text.conversation import HistoryToolCall, MediaPart, TextPart, Turn
from ninfer_jax.text.frontend import THINKING_CLOSE, Frontend
from ninfer_jax.text.segments import SegmentEncoder
from ninfer_jax.text.tokenizer import load_tokenizer
from ninfer_jax.types import FinishReason, SamplingParams, TextDelta, ToolCallDelta
from tests.text.fakes import CHATML, THINKING, conversation, frontend, resources, tool, turn

HI = conversation(turn("user", "Hi"))


def answer(front: Frontend, text: str, **options: object) -> list[object]:
    session = front.session(front.prepare(HI), **options)  # type: ignore[arg-type]
    deltas = session.commit(front.tokenizer.encode(text))
    return [*deltas, *session.finish(FinishReason.STOP)]


def test_prepare_renders_and_tokenises() -> None:
    prepared = frontend().prepare(HI)
    assert prepared.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert prepared.prompt.token_ids == (257, *b"user\nHi", 258, 10, 257, *b"assistant\n")
    assert (prepared.reasoning, prepared.thinking) == (None, False)


def test_defaults_come_from_the_checkpoint() -> None:
    front = frontend()
    assert front.defaults.eos_ids == {256, 258}
    assert front.sampling_defaults(thinking=False) == SamplingParams(temperature=0.7, top_k=20)


def test_registered_identities_have_presets() -> None:
    front = Frontend.from_resources(resources(), max_context=10, model_id="qwen3.6-35b-a3b")
    assert front.sampling_defaults(thinking=True).presence_penalty == 1.5
    assert front.sampling_defaults(thinking=False).top_p == 0.8


def test_eos_falls_back_to_the_tokenizer_and_the_template() -> None:
    bare = resources() | {
        "generation_config.json": b"{}",
        "tokenizer_config.json": b'{"eos_token": "<|endoftext|>"}',
    }
    assert Frontend.from_resources(bare, max_context=10).defaults.eos_ids == {256, 258}


def test_too_long_a_prompt_names_both_counts() -> None:
    with pytest.raises(ContextLengthExceededError, match=r"\b21 tokens.*\b20\b"):
        frontend(max_context=20).prepare(HI)
    assert len(frontend(max_context=21).prepare(HI).prompt.token_ids) == 21


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (conversation(), InvalidPromptError, "empty"),
        (conversation(turn("user", "x"), reasoning_effort="low"), InvalidRequestError, "effort 'low'"),
        (
            conversation(Turn("user", (MediaPart("image", "http://x"),))),
            UnsupportedFeatureError,
            "images and videos",
        ),
    ],
)
def test_bad_conversations(bad: object, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        frontend().prepare(bad)  # type: ignore[arg-type]


def test_template_refusal_is_the_request_s_fault() -> None:
    with pytest.raises(InvalidPromptError, match="only users here"):
        frontend("{{ raise_exception('only users here') }}").prepare(HI)


def test_no_template_and_plain_text() -> None:
    bare = {name: data for name, data in resources().items() if name != "chat_template.jinja"}
    front = Frontend.from_resources(bare, max_context=5)
    with pytest.raises(InvalidPromptError, match="no chat template"):
        front.prepare(HI)
    assert front.prepare_text("Once").prompt.token_ids == tuple(b"Once")
    with pytest.raises(InvalidPromptError, match="empty"):
        front.prepare_text("")
    with pytest.raises(ContextLengthExceededError):
        front.prepare_text("Once upon")


def test_template_is_found_in_older_places() -> None:
    bare = {name: data for name, data in resources().items() if name != "chat_template.jinja"}
    entries = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": CHATML}]
    bare["tokenizer_config.json"] = json.dumps({"chat_template": entries}).encode()
    assert Frontend.from_resources(bare, max_context=99).prepare(HI).text.startswith("<|im_start|>user")
    with pytest.raises(CorruptModelError, match=r"generation_config\.json"):
        Frontend.from_resources(resources() | {"generation_config.json": b"["}, max_context=9)


def test_thinking_is_read_off_the_prompt() -> None:
    front = frontend(THINKING)
    on, off = front.prepare(HI), front.prepare(replace(HI, enable_thinking=False))
    assert (on.reasoning, on.thinking) == (True, True)
    assert (off.reasoning, off.thinking) == (False, False)
    assert (on.effort, off.effort) == (None, "none")
    assert answer(front, "so\n</think>\n\nHi!") == [TextDelta("reasoning", "so"), TextDelta("content", "Hi!")]


def test_a_prefill_is_continued() -> None:
    front = frontend(THINKING)
    talk = conversation(
        turn("user", "Hi"), turn("assistant", "Hel"), enable_thinking=False, continue_final_turn=True
    )
    prepared = front.prepare(talk)
    assert prepared.text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\nHel")
    session = front.session(prepared)
    assert session.commit(front.tokenizer.encode("\n\nlo")) == (TextDelta("content", "\n\nlo"),)
    with pytest.raises(InvalidPromptError, match="text alone"):
        front.prepare(replace(talk, turns=(turn("user", "Hi"), turn("assistant", "x", reasoning="y"))))


def test_only_callable_tools_become_calls() -> None:
    front = frontend()
    call = "<tool_call>\n<function=ping>\n</function>\n</tool_call>"
    talk = conversation(turn("user", "Hi"), tools=(tool("ping"),))
    for names, expected in ((frozenset({"ping"}), [ToolCallDelta(0, "ping", "{}")]), (frozenset(), None)):
        session = front.session(front.prepare(replace(talk, callable_tools=names)))
        deltas = [*session.commit(front.tokenizer.encode(call)), *session.finish(FinishReason.STOP)]
        text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
        assert deltas == expected if expected else text == call


def test_templates_without_tools_get_them_as_text() -> None:
    calls = (HistoryToolCall("c1", "ping", {"x": "a", "n": [1]}),)
    talk = conversation(
        turn("system", "Be nice."),
        turn("user", "Hi"),
        turn("assistant", "Calling.", tool_calls=calls),
        turn("tool", "pong", tool_call_id="c1"),
        turn("tool", "no", tool_call_id="c2", is_error=True),
        tools=(tool("ping"),),
    )
    text = frontend().prepare(talk).text
    assert '<tools>\n{"type": "function", "function": {"name": "ping"' in text
    assert "Be nice.<|im_end|>" in text
    assert (
        "Calling.\n\n<tool_call>\n<function=ping>\n<parameter=x>\na\n</parameter>\n<parameter=n>\n[1]\n"
        in text
    )
    assert "user\n<tool_response>\npong\n</tool_response>\n<tool_response>\nis_error: true\nno\n" in text


def test_thinking_budget_must_fit() -> None:
    front = frontend(THINKING)
    prepared = front.prepare(HI)
    close = len(THINKING_CLOSE) - len("</think>") + 1
    assert len(front.thinking_close_ids) == close
    for capacity in (4, 10, 10 + close + 1, 500):
        front.session(prepared, thinking_budget=10, max_output_tokens=capacity)
    for capacity in (11, 10 + close):
        with pytest.raises(InvalidRequestError) as caught:
            front.session(prepared, thinking_budget=10, max_output_tokens=capacity)
        assert caught.value.code == "thinking_budget_capacity_insufficient"
    off = front.prepare(replace(HI, enable_thinking=False))
    front.session(off, thinking_budget=10, max_output_tokens=11)


@given(
    st.lists(
        st.sampled_from(["<|im_start|>", "<|im_end|>", "<think>", "a", "\n", " ", "é", "<|"]), max_size=12
    )
)
def test_segments_encode_like_the_whole(words: list[str]) -> None:
    tokenizer = load_tokenizer(resources())
    encoder = SegmentEncoder(tokenizer, tokenizer.boundary_tokens("<|im_start|><|im_end|>"))
    text = "".join(words)
    for _ in range(2):  # the second time from the cache
        encoded = encoder.encode(text)
        assert list(encoded.token_ids) == tokenizer.encode(text)
        for offset in range(len(text) + 1):
            position = encoder.position_of(encoded, offset)
            assert position is None or list(encoded.token_ids[:position]) == tokenizer.encode(text[:offset])


WORDS = st.sampled_from(
    ["", "Hi", " a\n", "<|im_start|>", "<think>", "</think>", "<tool_response>", "q7probe", "é", "{{ x }}"]
)
TEXT = st.lists(WORDS, max_size=3).map("".join)
TURNS = st.builds(
    Turn,
    role=st.sampled_from(["system", "developer", "user", "user", "assistant", "tool"]),
    parts=st.lists(st.builds(TextPart, TEXT, st.booleans()), max_size=3).map(tuple),
    reasoning=st.none() | TEXT,
    tool_calls=st.lists(
        st.builds(
            HistoryToolCall, st.just("c"), WORDS, st.dictionaries(WORDS, TEXT, max_size=2), st.booleans()
        ),
        max_size=2,
    ).map(tuple),
    tool_call_id=st.none() | st.just("c"),
    is_error=st.booleans(),
)
SOURCES = [CHATML, *(path.read_text() for path in sorted((Path(__file__).parent / "data").glob("*.jinja")))]
FRONTENDS = [frontend(source, max_context=2000) for source in SOURCES]


@given(
    st.sampled_from(FRONTENDS),
    st.lists(TURNS, max_size=5),
    st.booleans(),
    st.sampled_from([None, True, False]),
    st.booleans(),
)
def test_any_conversation_is_prepared_or_refused(
    front: Frontend, turns: list[Turn], with_tools: bool, preserve: bool | None, continues: bool
) -> None:
    tools = (tool("ping"), tool("pong")) if with_tools else ()
    talk = conversation(*turns, tools=tools, preserve_thinking=preserve, continue_final_turn=continues)
    try:
        prepared = front.prepare(talk)
    except RequestError:
        return
    ids = list(prepared.prompt.token_ids)
    assert ids == front.tokenizer.encode(prepared.text)
    positions = [frontier.position for frontier in prepared.prompt.frontiers]
    assert positions == sorted(positions)
    for position in positions:
        head = front.tokenizer.decode(ids[:position], skip_special=False)
        assert 0 < position < len(ids)
        assert prepared.text.startswith(head)
        assert front.tokenizer.encode(head) == ids[:position]
    front.session(prepared).finish(FinishReason.CANCELLED)
