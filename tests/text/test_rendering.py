"""Our renderings against the stock templates': equal where those accept, as specified where they raise.

The committed fixtures have the family's branches in our own words. Set ``NINFER_TEMPLATES`` to a folder
of official ``*.jinja`` files to run the same tables over them.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ninfer_jax.errors import NinferError
from ninfer_jax.text.capabilities import TemplateCapabilities, detect_capabilities
from ninfer_jax.text.conversation import Conversation, HistoryToolCall, MediaPart, Turn
from ninfer_jax.text.output_parser import parse_output
from ninfer_jax.text.rendering import ConversationRenderer
from ninfer_jax.text.template import ChatTemplate
from ninfer_jax.text.tool_prompt import render_call
from tests.text.conversations import ACCEPTED, EFFORTS, LATER_SYSTEM, REFUSED
from tests.text.fakes import conversation, tool, turn

FIXTURES = Path(__file__).parent / "data"
OFFICIAL = os.environ.get("NINFER_TEMPLATES")
PATHS = [*sorted(FIXTURES.glob("*.jinja")), *(sorted(Path(OFFICIAL).glob("*.jinja")) if OFFICIAL else [])]


@pytest.fixture(params=PATHS, ids=lambda path: path.stem, scope="module")
def template(request: pytest.FixtureRequest) -> ChatTemplate:
    return ChatTemplate(request.param.read_text())


@pytest.fixture(scope="module")
def renderer(template: ChatTemplate) -> ConversationRenderer:
    return ConversationRenderer(template, detect_capabilities(template), {})


def stock(template: ChatTemplate, talk: Conversation) -> str:
    """As transformers renders: its jinja settings, plain dicts, json.dumps."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = refuse
    switches = {
        "enable_thinking": talk.enable_thinking,
        "preserve_thinking": talk.preserve_thinking,
        "reasoning_effort": talk.reasoning_effort,
    }
    return environment.from_string(template.source).render(
        messages=[stock_message(turn) for turn in talk.turns],
        tools=[tool.definition for tool in talk.tools] or None,
        add_generation_prompt=True,
        **{name: value for name, value in switches.items() if value is not None},
    )


def stock_message(turn: Turn) -> dict[str, Any]:
    parts = [
        {"type": part.kind} if isinstance(part, MediaPart) else {"type": "text", "text": part.text}
        for part in turn.parts
    ]
    message: dict[str, Any] = {"role": turn.role, "content": parts}
    if turn.reasoning is not None:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["tool_calls"] = [
            {"function": {"name": c.name, "arguments": c.arguments}} for c in turn.tool_calls
        ]
    return message


def test_there_are_enough_conversations() -> None:
    assert len(ACCEPTED) + len(REFUSED) + len(LATER_SYSTEM) >= 40


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_conversations_render_alike(
    name: str, template: ChatTemplate, renderer: ConversationRenderer
) -> None:
    talk = ACCEPTED[name]
    # json.dumps writes 1.50 as 1.5; a received number keeps its spelling
    expected = stock(template, talk).replace("1.5\n", "1.50\n").replace("1.5}", "1.50}")
    assert renderer.render(talk) == expected


@pytest.mark.parametrize("name", EFFORTS)
def test_efforts_render_alike(name: str, template: ChatTemplate, renderer: ConversationRenderer) -> None:
    assert renderer.render(EFFORTS[name]) == stock(template, EFFORTS[name])


@pytest.mark.parametrize("name", REFUSED)
def test_refused_conversations(name: str, template: ChatTemplate, renderer: ConversationRenderer) -> None:
    with pytest.raises(jinja2.TemplateError):
        stock(template, REFUSED[name])
    with pytest.raises(NinferError):
        renderer.render(REFUSED[name])


@pytest.mark.parametrize("name", LATER_SYSTEM)
def test_later_system_turns_stay_in_place(
    name: str, template: ChatTemplate, renderer: ConversationRenderer
) -> None:
    talk, expected = LATER_SYSTEM[name]
    with pytest.raises(jinja2.TemplateError):
        stock(template, talk)
    assert renderer.render(replace(talk, enable_thinking=False)) == expected


def test_an_appended_system_turn_leaves_the_history_alone(renderer: ConversationRenderer) -> None:
    for talk in ACCEPTED.values():
        more = replace(talk, turns=(*talk.turns, turn("system", "Rhyme.")))
        assert renderer.render(more, generation=False).startswith(renderer.render(talk, generation=False))


def test_capabilities(template: ChatTemplate) -> None:
    has_efforts = "reasoning_effort" in template.source
    assert detect_capabilities(template) == TemplateCapabilities(
        tools=True,
        tool_dialect="qwen_xml",
        thinking=True,
        preserve_switch=True,
        preserve_default=has_efforts,
        efforts=("low", "medium", "xhigh") if has_efforts else (),
        default_effort="xhigh" if has_efforts else None,
        later_system=False,
        turn_end="<|im_end|>",
    )


def test_capabilities_of_plain_templates() -> None:
    plain = detect_capabilities(
        ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    )
    assert plain.later_system
    assert not any((plain.tools, plain.thinking, plain.efforts, plain.preserve_default))
    prints_any = ChatTemplate("{{ reasoning_effort }}{% for m in messages %}{{ m.content }}{% endfor %}")
    assert detect_capabilities(prints_any).efforts == ()
    hermes = ChatTemplate("{{ tools }}<tool_call>{% for m in messages %}{{ m.content }}{% endfor %}")
    assert detect_capabilities(hermes).tool_dialect == "hermes_json"


def test_a_cut_history_is_shown(renderer: ConversationRenderer) -> None:
    """Templates refuse a history without a question and forget to open a turn for leading results."""
    result = turn("tool", "20C", tool_call_id="c")
    call = Turn("assistant", (), tool_calls=(HistoryToolCall("c", "look", {}),))
    opened = "<|im_start|>user\n<tool_response>\n20C\n</tool_response><|im_end|>\n"
    for turns in [(result,), (result, turn("user", "go on")), (call, result)]:
        text = renderer.render(conversation(*turns))
        assert opened in text
        assert text.count("<|im_start|>user") == 1 + (turns[-1].role == "user")
    shown = renderer.render(conversation(turn("system", "S"), result, turn("system", "late")))
    assert (
        shown.index("S<|im_end|>") < shown.index(opened) < shown.index("<|im_start|>system\nlate<|im_end|>")
    )


NAMES = st.text("abcXYZ_-9", min_size=1, max_size=12)
KEYS = st.text("abc xyzÄ_\"'{}&", min_size=1, max_size=8)
MARKERS = ["<tool_call>", "</tool_call>", "</function>", "<function=f>", "<think>", "</think>", "<parameter="]
MARKUP = st.sampled_from([*MARKERS, "<parameter=k>\nv\n</parameter>", "<", "\n", " ", "x", "\\", '"'])
STRINGS = st.text(max_size=20) | st.lists(MARKUP, max_size=6).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.lists(st.tuples(NAMES, st.dictionaries(KEYS, STRINGS | JSON, max_size=4)), min_size=1, max_size=3)


@given(CALLS, st.sampled_from(["", "Calling now.", "a < b"]))
def test_rendered_calls_parse_back(
    template: ChatTemplate, renderer: ConversationRenderer, calls: Any, text: str
) -> None:
    """Whatever a template writes for a call, the parser reads as that call. The wire format cannot say
    ``</parameter>`` alone or an unclosed ``<parameter=x>``, and a declared type decides string or not."""
    if any(
        unbalanced(value) for _, arguments in calls for value in arguments.values() if isinstance(value, str)
    ):
        return
    history = tuple(HistoryToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    tools = tuple(
        tool(name, properties_of(arguments)) for name, arguments in calls if last(calls, name) is arguments
    )
    if any(properties_of(arguments) != properties_of(last(calls, name)) for name, arguments in calls):
        return
    talk = conversation(turn("user", "Hi"), turn("assistant", text, tool_calls=history))
    rendered = renderer.render(replace(talk, preserve_thinking=False), generation=False)
    output = rendered.rpartition("<|im_start|>assistant\n")[2].removesuffix("<|im_end|>\n")
    parsed = parse_output(output, tools, reasoning=False)
    assert parsed.content == text
    assert parsed.fallback_reason == "none"
    assert [(call.name, json.loads(call.arguments)) for call in parsed.tool_calls] == calls
    assert [list(json.loads(call.arguments)) for call in parsed.tool_calls] == [list(a) for _, a in calls]


@given(NAMES, st.dictionaries(KEYS, STRINGS | JSON, max_size=4))
def test_calls_written_as_text_parse_back(name: str, arguments: dict[str, Any]) -> None:
    if any(unbalanced(value) for value in arguments.values() if isinstance(value, str)):
        return
    parsed = parse_output(render_call(name, arguments), [tool(name, properties_of(arguments))])
    assert [(call.name, json.loads(call.arguments)) for call in parsed.tool_calls] == [(name, arguments)]


HERMES = """
{%- for tool in tools or [] %}
    {{- tool | tojson }}
{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n<tool_call>\\n{"name": ' + (call.function.name | tojson) + ', "arguments": ' }}
        {{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}"""


@given(CALLS, st.sampled_from(["", "Calling now."]))
def test_hermes_calls_parse_back(calls: Any, text: str) -> None:
    template = ChatTemplate(HERMES)
    capabilities = detect_capabilities(template)
    assert capabilities.tool_dialect == "hermes_json"
    history = tuple(HistoryToolCall(f"c{i}", name, arguments) for i, (name, arguments) in enumerate(calls))
    tools = tuple(tool(name) for name in {name for name, _ in calls})
    talk = conversation(turn("assistant", text, tool_calls=history), tools=tools)
    rendered = ConversationRenderer(template, capabilities, {}).render(talk)
    output = rendered.rpartition("<|im_start|>assistant\n")[2].removesuffix("<|im_end|>\n")
    parsed = parse_output(output, tools, dialect="hermes_json")
    assert (parsed.content, parsed.fallback_reason) == (text, "none")
    assert [(call.name, json.loads(call.arguments)) for call in parsed.tool_calls] == calls


@pytest.mark.parity
def test_stock_rendering_is_what_transformers_does(template: ChatTemplate) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    for talk in [*ACCEPTED.values(), *EFFORTS.values()]:
        switches = {
            "enable_thinking": talk.enable_thinking,
            "preserve_thinking": talk.preserve_thinking,
            "reasoning_effort": talk.reasoning_effort,
        }
        rendered, _ = render_jinja_template(
            conversations=[[stock_message(turn) for turn in talk.turns]],
            tools=[dict(tool.definition) for tool in talk.tools] or None,
            chat_template=template.source,
            add_generation_prompt=True,
            **{name: value for name, value in switches.items() if value is not None},
        )
        assert rendered == [stock(template, talk)]


def last(calls: Any, name: str) -> Any:
    return next(arguments for called, arguments in reversed(calls) if called == name)


def properties_of(arguments: dict[str, Any]) -> dict[str, Any]:
    return {key: {"type": "string"} if isinstance(value, str) else {} for key, value in arguments.items()}


def unbalanced(value: str) -> bool:
    """Whether the wire format cannot carry this string."""
    bare = value.replace("<parameter=k>\nv\n</parameter>", "")
    return "</parameter>" in bare or "<parameter=" in bare
