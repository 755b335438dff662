"""A text side where a token is a byte: prompts can be read, outputs can be scripted as strings."""

from collections.abc import Sequence

from ninfer_jax.errors import ContextLengthExceededError
from ninfer_jax.json_values import dump_json
from ninfer_jax.text.capabilities import TemplateCapabilities
from ninfer_jax.text.conversation import Conversation, MediaPart, Turn
from ninfer_jax.text.frontend import Prepared
from ninfer_jax.types import (
    Delta,
    FinishReason,
    OutputSession,
    OutputSummary,
    PreparedPrompt,
    Preview,
    SamplingParams,
    TextDelta,
)

END = 256


class ByteSession:
    """Plain text with stop strings; no reasoning, no tools."""

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = stop
        self._bytes = b""
        self._sent = 0
        self._matched: str | None = None

    def preview(self, token_ids: Sequence[int]) -> Preview:
        text = self._bytes
        for count, token in enumerate(token_ids, 1):
            if token == END:
                return Preview(count, FinishReason.STOP)
            text += bytes([token])
            if any(stop.encode() in text for stop in self._stop):
                return Preview(count, FinishReason.STOP_STRING)
        return Preview(len(token_ids))

    def commit(self, token_ids: Sequence[int]) -> tuple[Delta, ...]:
        self._bytes += bytes(token for token in token_ids if token < 256)
        text = self._bytes.decode(errors="ignore")
        for stop in self._stop:
            if stop in text:
                self._matched = stop
                text = text[: text.index(stop)]
                return self._send(text)
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        return self._send(text[: max(self._sent, len(text) - longest)])

    def finish(self, reason: FinishReason) -> tuple[Delta, ...]:
        return () if self._matched else self._send(self._bytes.decode(errors="replace"))

    def summary(self) -> OutputSummary:
        return OutputSummary(stop_string=self._matched)

    def _send(self, text: str) -> tuple[Delta, ...]:
        new, self._sent = text[self._sent :], max(self._sent, len(text))
        return (TextDelta("content", new),) if new else ()


class ByteFrontend:
    capabilities: TemplateCapabilities | None = None

    def __init__(self, max_context: int = 4096) -> None:
        self._max_context = max_context

    def sampling_defaults(self, *, thinking: bool) -> SamplingParams:
        return SamplingParams()

    def prepare(self, conversation: Conversation) -> Prepared:
        tools = "".join(f"<tool>{dump_json(tool.definition)}\n" for tool in conversation.tools)
        text = tools + "".join(map(render_turn, conversation.turns)) + "<assistant>"
        ids = tuple(text.encode())
        if len(ids) > self._max_context:
            raise ContextLengthExceededError(f"{len(ids)} tokens, {self._max_context} fit")
        return Prepared(PreparedPrompt(ids), text, reasoning=None, thinking=False)

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
        return ByteSession(tuple(stop))


def render_turn(turn: Turn) -> str:
    role = "system" if turn.role == "developer" else turn.role
    text = "".join(f"[{part.url}]" if isinstance(part, MediaPart) else part.text for part in turn.parts)
    calls = "".join(f"<call>{call.name}{dump_json(call.arguments)}" for call in turn.tool_calls)
    return f"<{role}>{text}{calls}\n"
