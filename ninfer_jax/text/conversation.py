"""A conversation in no protocol's dialect: what the builders produce and the chat template renders.

Message order, part order and JSON member order are the client's. Nothing is trimmed or merged here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str
    breakpoint: bool = False
    """The client marked the end of this part as a cache boundary."""


@dataclass(frozen=True, slots=True)
class MediaPart:
    kind: Literal["image", "video"]
    url: str
    breakpoint: bool = False


Part: TypeAlias = TextPart | MediaPart


@dataclass(frozen=True, slots=True)
class HistoryToolCall:
    """A call that the assistant made. ``arguments`` keeps member order and number spelling
    (:class:`~ninfer_jax.json_values.JsonFloat`); render it with ``json_values.dump_json``."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    breakpoint: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. ``reasoning`` and ``tool_calls`` only on assistant turns; ``tool_call_id`` only on
    tool turns, which stand in call declaration order after the assistant turn they answer."""

    role: Role
    parts: tuple[Part, ...]
    reasoning: str | None = None
    tool_calls: tuple[HistoryToolCall, ...] = ()
    tool_call_id: str | None = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call. ``definition`` is what the template renders, in the OpenAI nested
    form ``{"type": "function", "function": {...}}``, members in received order, numbers as spelled
    (``json_values``)."""

    name: str
    definition: Mapping[str, Any]
    breakpoint: bool = False

    @property
    def parameters(self) -> Mapping[str, Any]:
        parameters = self.definition.get("function", {}).get("parameters")
        return parameters if isinstance(parameters, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns, tools and resolved template switches. None leaves a switch to the template's default."""

    turns: Sequence[Turn]
    tools: Sequence[Tool] = ()
    callable_tools: frozenset[str] = frozenset()
    """Names that may become structured calls; empty disables tool parsing although tools are rendered."""
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    reasoning_effort: str | None = None
    continue_final_turn: bool = False
    """The last turn is an assistant prefill: generation continues its text."""
    implicit_breakpoint: bool = True
    """Besides the marked boundaries, the end of the content may be kept for later requests."""
