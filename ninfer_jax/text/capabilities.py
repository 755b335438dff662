"""What a chat template can do, found out by reading and by trying it.

Nothing is inferred from a model's name: the template's text is compiled, its variables are listed, and
small conversations are rendered to see what changes and what is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_jax.errors import InvalidPromptError
from ninfer_jax.text.output_parser import ToolDialect
from ninfer_jax.text.template import ChatTemplate

KNOWN_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    tools: bool
    """The template renders tools in a dialect that our parsers read."""
    tool_dialect: ToolDialect
    thinking: bool
    """The model writes ``<think>`` blocks."""
    preserve_switch: bool
    preserve_default: bool
    """Whether reasoning of closed turns stays when nobody says."""
    efforts: tuple[str, ...]
    """Reasoning efforts that the template tells apart; empty when it has none."""
    default_effort: str | None
    later_system: bool
    """The template itself shows system turns after the first message."""
    turn_end: str | None
    """The token text that ends a turn, for templates in the ChatML family."""


def detect_capabilities(template: ChatTemplate) -> TemplateCapabilities:
    source, variables = template.source, template.variables
    dialect: ToolDialect | None = (
        "qwen_xml" if "<function=" in source else "hermes_json" if "<tool_call>" in source else None
    )
    efforts, default_effort = _efforts(template) if "reasoning_effort" in variables else ((), None)
    return TemplateCapabilities(
        tools="tools" in variables and dialect is not None,
        tool_dialect=dialect or "qwen_xml",
        thinking="</think>" in source,
        preserve_switch="preserve_thinking" in variables,
        preserve_default=_keeps_old_reasoning(template),
        efforts=efforts,
        default_effort=default_effort,
        later_system=_shows_later_system(template),
        turn_end="<|im_end|>" if "<|im_end|>" in source else None,
    )


def _efforts(template: ChatTemplate) -> tuple[tuple[str, ...], str | None]:
    """Only templates that refuse an unknown effort declare their efforts; others print anything."""
    messages = [_say("user", "Hi")]
    if _try(template, messages, reasoning_effort="no such effort") is not None:
        return (), None
    shown = {effort: _try(template, messages, reasoning_effort=effort) for effort in KNOWN_EFFORTS}
    plain = _try(template, messages)
    default = next((effort for effort, text in shown.items() if text is not None and text == plain), None)
    return tuple(effort for effort, text in shown.items() if text is not None), default


def _keeps_old_reasoning(template: ChatTemplate) -> bool:
    old = {**_say("assistant", "Hello."), "reasoning_content": "q7-old-thought"}
    text = _try(template, [_say("user", "Hi"), old, _say("user", "And now?")])
    return text is not None and "q7-old-thought" in text


def _shows_later_system(template: ChatTemplate) -> bool:
    turns = [_say("system", "s0"), _say("user", "u1"), _say("system", "q7-later-system"), _say("user", "u2")]
    text = _try(template, turns)
    return text is not None and "q7-later-system" in text


def _say(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _try(template: ChatTemplate, messages: Sequence[dict[str, Any]], **switches: Any) -> str | None:
    variables = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
    try:
        return template.render({**variables, "bos_token": "", "eos_token": "", **switches})
    except InvalidPromptError:
        return None
