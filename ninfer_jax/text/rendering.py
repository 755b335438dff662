"""A :class:`Conversation` in the words of a chat template, with what the template itself cannot say.

- Later system and developer turns stay where they are. Templates that refuse them get a stand-in user
  turn there, which is then replaced by a system block; it is dressed as a tool response, so it never
  counts as the user's query. A leading one keeps the template's own composition.
- A history cut so that it begins with tool results, or holds no question at all, gets a stand-in question in
  front, which is then removed: templates look for one, and open a result's turn only after another message.
- Templates without a tool dialect that our parsers read get the tools, calls and results as text.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ninfer_jax.errors import InvalidPromptError, UnsupportedFeatureError
from ninfer_jax.text.capabilities import TemplateCapabilities
from ninfer_jax.text.conversation import Conversation, MediaPart, Part, TextPart, Turn
from ninfer_jax.text.template import ChatTemplate
from ninfer_jax.text.tool_prompt import with_tools_as_text

_STAND_IN = "<tool_response>{}</tool_response>"
_TURN_END = "<|im_end|>"
_USER_BLOCK = "<|im_start|>user\n{}" + _TURN_END + "\n"
_SYSTEM_BLOCK = "<|im_start|>system\n{}" + _TURN_END + "\n"


class ConversationRenderer:
    """Renders with one template. Stateless apart from what it was made with; safe in several threads."""

    def __init__(
        self, template: ChatTemplate, capabilities: TemplateCapabilities, special_tokens: Mapping[str, str]
    ) -> None:
        self._template = template
        self._capabilities = capabilities
        self._special_tokens = special_tokens
        self._secret = secrets.token_hex(8)

    def render(self, conversation: Conversation, *, generation: bool = True) -> str:
        """The prompt text; with ``generation`` up to where the answer begins. Raises InvalidPromptError."""
        if conversation.continue_final_turn and generation:
            return self._render_prefill(conversation)
        if not self._capabilities.tools and (conversation.tools or _has_tool_turns(conversation.turns)):
            conversation = with_tools_as_text(conversation)
        messages, stand_ins = self._messages(conversation.turns)
        text = self._template.render(self._variables(conversation, messages, generation))
        for stand_in, meant in stand_ins.items():
            block = _USER_BLOCK.format(stand_in)
            if text.count(stand_in) != 1 or block not in text:
                raise InvalidPromptError(
                    "the chat template cannot show a system message after the first message"
                    if meant
                    else "the chat template cannot show a conversation that begins with tool results"
                )
            text = text.replace(block, meant)
        return text

    def _render_prefill(self, conversation: Conversation) -> str:
        """The generation prologue of the turns before, then the text to be continued."""
        final = conversation.turns[-1]
        if (
            final.role != "assistant"
            or final.reasoning
            or final.tool_calls
            or any(isinstance(part, MediaPart) for part in final.parts)
        ):
            raise InvalidPromptError("only an assistant turn that is text alone can be continued")
        before = replace(conversation, turns=conversation.turns[:-1], continue_final_turn=False)
        return self.render(before) + text_of(final.parts)

    def _variables(
        self, conversation: Conversation, messages: list[dict[str, Any]], generation: bool
    ) -> dict[str, Any]:
        tools = [dict(tool.definition) for tool in conversation.tools] or None
        switches = {
            "enable_thinking": conversation.enable_thinking,
            "preserve_thinking": conversation.preserve_thinking,
            "reasoning_effort": conversation.reasoning_effort,
        }
        return {
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": generation,
            **self._special_tokens,
            **{name: value for name, value in switches.items() if value is not None},
        }

    def _messages(self, turns: Sequence[Turn]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The template's messages, and the blocks that stand-ins stand for."""
        messages: list[dict[str, Any]] = []
        stand_ins: dict[str, str] = {}
        names = {call.id: call.name for turn in turns for call in turn.tool_calls}
        cut_at = _cut_at(turns) if self._capabilities.turn_end == _TURN_END else None
        for index, turn in enumerate(turns):
            if index == cut_at:
                question = f"{self._secret}:question"
                stand_ins[question] = ""
                messages.append({"role": "user", "content": question})
            if turn.role not in ("system", "developer"):
                messages.append(_message(turn, names))
            elif index == 0 or self._capabilities.later_system:
                messages.append({"role": "system", "content": _content(turn.parts)})
            else:
                stand_in = _STAND_IN.format(f"{self._secret}:{index}")
                stand_ins[stand_in] = _SYSTEM_BLOCK.format(_system_text(turn).strip())
                messages.append({"role": "user", "content": stand_in})
        return messages, stand_ins


def text_of(parts: Sequence[Part]) -> str:
    """Text parts joined without separators."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _message(turn: Turn, names: Mapping[str, str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": _content(turn.parts)}
    if turn.role == "tool":
        if turn.is_error:
            message["content"] = _marked_error(message["content"])
        if turn.tool_call_id is not None:
            message["tool_call_id"] = turn.tool_call_id
            if turn.tool_call_id in names:
                message["name"] = names[turn.tool_call_id]
    if turn.reasoning is not None:
        message["reasoning_content"] = turn.reasoning
    if turn.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": dict(call.arguments)},
            }
            for call in turn.tool_calls
        ]
    return message


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, MediaPart) for part in parts):
        return text_of(parts)
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": part.kind}
        for part in parts
    ]


def _marked_error(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    note = "is_error: true\n"
    return note + content if isinstance(content, str) else [{"type": "text", "text": note}, *content]


def _system_text(turn: Turn) -> str:
    if any(isinstance(part, MediaPart) for part in turn.parts):
        raise UnsupportedFeatureError("a system message cannot contain images or videos")
    return text_of(turn.parts)


def _cut_at(turns: Sequence[Turn]) -> int | None:
    """Where a question is missing: before leading tool results, or before a loop of calls without any."""
    first = next((i for i, turn in enumerate(turns) if turn.role not in ("system", "developer")), None)
    if first is None or (turns[first].role != "tool" and any(turn.role == "user" for turn in turns)):
        return None
    return first if _has_tool_turns(turns) else None


def _has_tool_turns(turns: Sequence[Turn]) -> bool:
    return any(turn.tool_calls or turn.role == "tool" for turn in turns)
