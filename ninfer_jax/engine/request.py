"""One request's life inside the engine.

    WAITING -> MATERIALIZING -> PREFILL -> DECODE_READY <-> CONTROL_READY -> TERMINAL_PENDING -> FINISHED

``CONTROL_READY`` means that forced tokens are due; ``TERMINAL_PENDING`` that the outcome is fixed and
the lane waits for the next boundary to be settled.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ninfer_jax.cache import KVCache, ReusePath
from ninfer_jax.engine.accounting import Exposure
from ninfer_jax.engine.admission import Entitlement
from ninfer_jax.errors import EngineError, NinferError
from ninfer_jax.types import (
    Event,
    EventSink,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Output,
    Timings,
    Usage,
    Wake,
)


class RequestState(Enum):
    WAITING = "waiting"
    MATERIALIZING = "materializing"
    PREFILL = "prefill"
    DECODE_READY = "decode_ready"
    CONTROL_READY = "control_ready"
    TERMINAL_PENDING = "terminal_pending"
    FINISHED = "finished"


def effective_output(requested: int, prompt_len: int, max_context: int) -> tuple[int, FinishReason]:
    """The output tokens that can be produced, and which bound that is: the request's or the context's."""
    room = max_context - prompt_len + 1
    if requested <= room:
        return requested, FinishReason.OUTPUT_LIMIT
    return room, FinishReason.CONTEXT_LIMIT


@dataclass(slots=True, eq=False)
class EngineRequest:
    """Owned by the engine thread, except the two flags that any thread may set."""

    id: int
    spec: GenerationRequest
    sink: EventSink
    entitlement: Entitlement
    effective_output: int
    limit_reason: FinishReason
    deadline: float
    submitted_at: float
    post: Callable[["EngineRequest", Event], None]
    """Puts an event of this request into the outbox."""
    on_end: Callable[[], None]
    """Called once, just before the terminal event."""

    cancel_requested: bool = False
    """Set by any thread; read at the two moments of a boundary that freeze it."""
    is_muted: bool = False
    """Set by any thread when the consumer has let go: no further event is delivered."""
    is_sink_broken: bool = False

    state: RequestState = RequestState.WAITING
    lane: int = -1
    path: ReusePath = ReusePath.ROOT
    cached_tokens: int = 0
    splits: tuple[int, ...] = ()
    """Prompt positions where a prefill chunk must end."""
    frontier: int = 0
    """Tokens whose state is committed on the device."""
    last_token: int = -1
    """The newest accepted token: part of the output, not yet in the cache."""
    forced: tuple[int, ...] = ()
    completion_tokens: int = 0
    computed_prefill_tokens: int = 0

    finish: FinishReason | None = None
    error: NinferError | None = None
    admitted_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float = 0.0
    prefilled_at: float | None = None
    exposure: Exposure = field(default_factory=Exposure)

    @property
    def prompt_len(self) -> int:
        return len(self.spec.prompt.token_ids)

    @property
    def remaining_output(self) -> int:
        return self.effective_output - self.completion_tokens

    def remaining_work(self, prefill_chunk: int) -> int:
        """Units still to come, at most: prefill chunks, known splits, one round a token; at least 1
        until the outcome is fixed."""
        if self.state is RequestState.TERMINAL_PENDING:
            return 0
        left = max(self.prompt_len - self.frontier, 0)
        chunks = -(-left // prefill_chunk) + sum(split > self.frontier for split in self.splits)
        return max(chunks + self.remaining_output - 1, 1)

    def end(self, reason: FinishReason) -> None:
        """Fix the outcome; the first one stands."""
        if self.finish is None and self.error is None:
            self.finish = reason
            self.state = RequestState.TERMINAL_PENDING

    def fail(self, error: NinferError) -> None:
        """Fix the outcome as a failure; it overrules a good one that is not published yet."""
        if self.error is None and self.state is not RequestState.FINISHED:
            self.error = error
            self.state = RequestState.TERMINAL_PENDING

    def flush_and_end(self, reason: FinishReason, at: float) -> None:
        """End outside a token commit: close the text session and publish what it held back."""
        if self.finish is not None or self.error is not None:
            return
        try:
            deltas = self.spec.session.finish(reason)
        except Exception as error:
            self.fail(local_failure(error, "the output session"))
            return
        self.end(reason)
        if deltas:
            self.publish(Output((), deltas, self.completion_tokens, at))

    def publish(self, event: Event) -> None:
        """From here on the event counts as sent; the consumer gets it at the next delivery."""
        self.post(self, event)

    def deliver(self, event: Event) -> Wake | None:
        """Hand an event to the consumer; returns what wakes it. A sink that raises fails this request
        only, and after that only the terminal event is tried: somebody may be waiting for it."""
        if self.is_muted or (self.is_sink_broken and not isinstance(event, Finished | Failed)):
            return None
        try:
            return self.sink(event)
        except Exception:
            self.is_sink_broken = True
            self.fail(EngineError("the event sink failed"))
            return None

    def usage(self, reasoning_tokens: int) -> Usage:
        return Usage(self.prompt_len, self.cached_tokens, self.completion_tokens, reasoning_tokens)

    def timings(self, now: float) -> Timings:
        if self.admitted_at is None:
            return Timings(queue=now - self.submitted_at, total=now - self.submitted_at)
        first = next((at for at in (self.first_token_at, self.prefilled_at) if at is not None), now)
        return Timings(
            queue=self.admitted_at - self.submitted_at,
            prompt=first - self.admitted_at,
            decode=max(self.last_token_at - first, 0.0) if self.first_token_at is not None else 0.0,
            total=now - self.submitted_at,
        )

    def counters(self, now: float) -> dict[str, Any]:
        """Facts of the completion record."""
        queue_wait = (now if self.admitted_at is None else self.admitted_at) - self.submitted_at
        return {
            "prefix_reuse_path": self.path.value,
            "prefix_cache_hit_tokens": self.cached_tokens,
            "computed_prefill_tokens": self.computed_prefill_tokens,
            "reserved_pages": self.entitlement.main_pages,
            "engine_timing": self.exposure.timing(queue_wait),
        }


def entitlement_of(prompt_len: int, effective: int) -> Entitlement:
    """A request's full entitlement in every dimension."""
    return Entitlement(lanes=1, main_pages=KVCache.entitled_pages(prompt_len, effective), state_slots=1)


def local_failure(error: Exception, what: str) -> NinferError:
    """What a request is told when its own text session raised."""
    if isinstance(error, NinferError):
        return error
    return EngineError(f"{what} failed: {type(error).__name__}")
