"""The text side as the server sees it; implemented by ``ninfer_jax.text.frontend.Frontend`` and by fakes."""

from collections.abc import Sequence
from typing import Protocol

from ninfer_jax.text.capabilities import TemplateCapabilities
from ninfer_jax.text.conversation import Conversation
from ninfer_jax.text.frontend import Prepared
from ninfer_jax.types import OutputSession, SamplingParams


class Frontend(Protocol):
    """Called on worker threads, several at a time. Raises RequestError for what a client got wrong."""

    @property
    def capabilities(self) -> TemplateCapabilities | None:
        """What the loaded chat template can express; None without a template."""
        ...

    def sampling_defaults(self, *, thinking: bool) -> SamplingParams:
        """The loaded model's own sampler in this mode."""
        ...

    def prepare(self, conversation: Conversation) -> Prepared:
        """Render, tokenise and check the length."""
        ...

    def session(
        self,
        prepared: Prepared,
        *,
        stop: Sequence[str] = (),
        tolerant: bool = False,
        thinking_budget: int | None = None,
        max_output_tokens: int | None = None,
        max_name: int = 64,
        ignore_eos: bool = False,
    ) -> OutputSession:
        """The decoder of one answer to this prompt. ``max_name`` bounds the names of tool calls."""
        ...
