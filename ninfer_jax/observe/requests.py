"""What is observed of one request: facts of its shape, its sampler and its times. Never its content."""

from dataclasses import dataclass
from typing import Protocol

from ninfer_jax.errors import NinferError
from ninfer_jax.types import GenerationRequest


@dataclass(frozen=True, slots=True)
class RequestShape:
    """What a server knows of a request once its body is understood, before the prompt is prepared.

    ``resolved_effort`` is ``none`` without thinking, a tier, or None when thinking has no tiers.
    """

    protocol: str
    stream: bool = False
    num_messages: int = 0
    num_tools: int = 0
    num_media_items: int = 0
    is_thinking: bool = False
    requested_effort: str | None = None
    resolved_effort: str | None = None
    thinking_budget: int | None = None
    changes_semantics: bool = False
    """A Responses request whose stored state does not continue as it was."""
    ignored: tuple[str, ...] = ()
    """Names of the hints that ``--lenient-api`` dropped."""
    client_request_id: str | None = None
    """The client's own ``x-request-id``; ours is another."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The answer to a request that could not be prepared."""

    status: int
    kind: str
    """The protocol's error type."""
    error: NinferError


class RequestObserver(Protocol):
    """The server's side of observation; called on any thread, must return at once.

    Every request whose body is understood gets ``prepared`` or ``rejected`` under one id. After
    ``prepared`` it is submitted under the same id, and the engine's observer hears the rest; a
    ``rejected`` after ``prepared`` means that the engine refused it at once.
    """

    def prepared(self, request_id: str, shape: RequestShape, received_at: float) -> None: ...

    def rejected(
        self, request_id: str, shape: RequestShape, received_at: float, rejection: Rejection
    ) -> None: ...


@dataclass(slots=True)
class RequestRecord:
    """One request on its way through. Times are monotonic seconds."""

    number: int
    """Counts up within this process."""
    request_id: str
    shape: RequestShape
    received_at: float
    prepared_at: float
    request: GenerationRequest | None = None
    first_token_at: float | None = None
    last_token_at: float = 0.0
    ended_at: float = 0.0

    @property
    def prepare_seconds(self) -> float:
        return self.prepared_at - self.received_at

    @property
    def total_seconds(self) -> float:
        """From arrival to the terminal event."""
        return self.ended_at - self.received_at

    @property
    def ttft_seconds(self) -> float | None:
        """From arrival to the first committed output token; None when there was none."""
        return None if self.first_token_at is None else self.first_token_at - self.received_at


UNKNOWN_SHAPE = RequestShape(protocol="library")
"""The shape of a request that no server announced."""
