"""The nouns that the layers share: requests, output sessions, events, and the engine's public face.

Nothing here imports jax or another module of this package except ``errors``. The engine takes token
ids and gives events; text lives behind :class:`OutputSession`, HTTP behind :class:`Engine`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol, TypeAlias

from ninfer_jax.errors import NinferError

Channel: TypeAlias = Literal["reasoning", "content"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """One request's sampler, fully resolved. ``temperature`` 0 is exact argmax.

    ``top_k`` 0 means the server's cap. ``seed`` is an unsigned 64-bit number; the draw for a token
    depends only on (seed, position, purpose), never on batch, chunking or cache hits.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class CacheFrontier:
    """A place in the prompt where a checkpoint is worth having; advice, never identity.

    ``position`` counts prompt tokens before it. ``kind`` is a checkpoint kind of the cache
    (``turn_closure``, ``response_replay``, ``tools_end``, ``system_end``, ``client_marker`` ...).
    """

    position: int
    kind: str


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A prompt as the model sees it. Token ids are exact; everything else is parallel to them.

    ``positions`` is None for text (every rope axis equals the ordinal), else three rows of
    ``len(token_ids)``. ``token_types`` is None for text, else 0 text, 1 image, 2 video per token.
    """

    token_ids: tuple[int, ...]
    token_types: tuple[int, ...] | None = None
    positions: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    frontiers: tuple[CacheFrontier, ...] = ()


class FinishReason(Enum):
    """Why a request ended. ``STOP`` is an end-of-turn token, ``STOP_STRING`` a client's stop string."""

    STOP = "stop"
    STOP_STRING = "stop_string"
    OUTPUT_LIMIT = "output_limit"
    CONTEXT_LIMIT = "context_limit"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Visible text that became certain."""

    channel: Channel
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of one tool call. ``name`` comes with the first piece of call ``index`` and only there;
    concatenated ``arguments`` are the call's JSON object, byte for byte what the aggregate holds."""

    index: int
    name: str | None
    arguments: str


Delta: TypeAlias = TextDelta | ToolCallDelta


@dataclass(frozen=True, slots=True)
class Preview:
    """What an :class:`OutputSession` decides about proposed tokens before any state is committed.

    ``accepted`` of the proposed ids are kept (all of them unless ``finish`` or ``force`` is set).
    ``force`` are ids to append after the accepted ones without sampling (the thinking budget's close);
    they come back through ``preview``/``commit`` like any other token.
    """

    accepted: int
    finish: FinishReason | None = None
    force: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """What the text side knows at the end of a request."""

    reasoning_tokens: int = 0
    stop_string: str | None = None
    tool_calls: int = 0
    parse_fallback_reason: str = "none"
    diagnostics: Mapping[str, Any] = field(default_factory=dict)


class OutputSession(Protocol):
    """One request's output decoder. Pure text code, injected: the engine holds no tokenizer.

    Called on the engine thread, in this order per unit: ``preview``, then (after the model state has
    committed) ``commit`` with the accepted count; once, at the end, ``finish``. ``preview`` changes
    nothing that a later ``preview`` could see, so it may be called again with other ids.
    """

    def preview(self, token_ids: Sequence[int]) -> Preview: ...

    def commit(self, token_ids: Sequence[int]) -> tuple[Delta, ...]:
        """Take exactly these (the accepted) ids; return the deltas that became certain."""
        ...

    def finish(self, reason: FinishReason) -> tuple[Delta, ...]:
        """Flush what was held back. Called once; nothing may follow."""
        ...

    def summary(self) -> OutputSummary: ...


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Everything the engine needs to run one request."""

    request_id: str
    prompt: PreparedPrompt
    sampling: SamplingParams
    max_output_tokens: int
    """Requested output tokens, >= 0; 0 runs the prompt only. The engine clamps to the context."""
    session: OutputSession
    session_key: str | None = None
    publish_session: bool = True
    """Whether finishing may advance ``session_key``'s latest endpoint."""


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds on the monotonic clock. ``prompt`` runs from committed admission to the first committed
    output token (or to the end of prefill when there is none); ``decode`` from there to the last."""

    queue: float = 0.0
    prompt: float = 0.0
    decode: float = 0.0
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """Once, before any other event: the reuse choice is committed."""

    prompt_tokens: int
    cached_tokens: int
    at: float


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """``processed`` counts reused tokens too; never decreases; ends at ``total``."""

    processed: int
    total: int
    at: float


@dataclass(frozen=True, slots=True)
class Output:
    """Committed tokens. ``deltas`` may be empty (text held back); ``completion_tokens`` is cumulative."""

    token_ids: tuple[int, ...]
    deltas: tuple[Delta, ...]
    completion_tokens: int
    at: float


@dataclass(frozen=True, slots=True)
class Finished:
    reason: FinishReason
    usage: Usage
    timings: Timings
    summary: OutputSummary
    counters: Mapping[str, Any] = field(default_factory=dict)
    """Engine facts for the request log: reuse path, computed prefill tokens, speculation, host phases."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Terminal, instead of :class:`Finished`."""

    error: NinferError


Event: TypeAlias = Admitted | PrefillProgress | Output | Finished | Failed
Wake: TypeAlias = Callable[[], None]
EventSink: TypeAlias = Callable[[Event], Wake | None]
"""Called on the engine thread; must hand the event over and return at once. What it returns wakes the
consumer: the engine calls each distinct one once, after the events of all requests are handed over."""


class Reservation(Protocol):
    """One request's share of the engine's bounded capacity, held from before preparation until the
    response is written and let go. Every method may be called from any thread, more than once."""

    @property
    def deadline(self) -> float:
        """Monotonic time before which admission must happen; fixed when it was reserved."""
        ...

    def submit(self, request: GenerationRequest, sink: EventSink) -> None:
        """Queue the request. Exactly one terminal event follows, unless ``release`` comes first.

        Raises ContextLengthExceededError or InvalidPromptError at once for what an empty engine could
        not run, EngineUnavailableError after a failure, QueueTimeoutError past the deadline.
        """
        ...

    def cancel(self) -> None:
        """End the request at the next boundary (finish reason ``CANCELLED``)."""
        ...

    def release(self) -> None:
        """Give it back, cancelling first if the request still runs."""
        ...


@dataclass(frozen=True, slots=True)
class Health:
    ok: bool
    model_loaded: bool


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a server may say about the resident model."""

    model_id: str
    max_context: int
    vocab_size: int
    architecture: str
    num_parameters: int
    has_vision: bool = False


class Engine(Protocol):
    """The engine as the server sees it; implemented by the real engine and by the test fake."""

    @property
    def info(self) -> ModelInfo: ...

    def reserve(self) -> Reservation:
        """Reserve capacity for one request. Raises ServerOverloadedError or EngineUnavailableError."""
        ...

    def stats(self) -> Mapping[str, Any]:
        """Scheduler, cache and throughput counters, JSON-ready."""
        ...

    def health(self) -> Health: ...
