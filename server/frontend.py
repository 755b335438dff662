"""The text side as the server sees it: templates, token ids, output decoding. No HTTP, no engine."""

from dataclasses import dataclass
from typing import Protocol

from ninfer_jax.text.conversation import Conversation
from ninfer_jax.types import OutputSession, PreparedPrompt, SamplingParams


@dataclass(frozen=True, slots=True)
class TemplateFeatures:
    """What the loaded chat template can express; found from the template itself."""

    has_thinking: bool = False
    """The template has a thinking switch."""
    efforts: tuple[str, ...] = ()
    """Reasoning efforts it declares, ``low``, ``medium``, ``xhigh`` ...; empty without tiers."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How one request's output is to be read."""

    stop: tuple[str, ...] = ()
    thinking_budget: int | None = None
    """Tokens of thinking before it is closed by force."""
    output_capacity: int = 0
    """Output tokens the context and the request's limit leave, for the budget's capacity check."""
    tolerant_tool_calls: bool = False


class Frontend(Protocol):
    """Called on worker threads, several at a time. Raises RequestError for what a client got wrong."""

    @property
    def features(self) -> TemplateFeatures: ...

    def sampling_defaults(self, *, thinking: bool) -> SamplingParams:
        """The loaded model's own sampler in this mode."""
        ...

    def prepare(self, conversation: Conversation) -> PreparedPrompt:
        """Render and tokenise. Raises InvalidPromptError when the template refuses the conversation."""
        ...

    def open_session(
        self, conversation: Conversation, prompt: PreparedPrompt, options: SessionOptions
    ) -> OutputSession:
        """The decoder of this request's output. Raises InvalidRequestError with code
        ``thinking_budget_capacity_insufficient`` when a forced close could not fit."""
        ...
