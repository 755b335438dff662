"""What passes between the handler and the protocols: a request's surroundings, and what it asks for."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ninfer_jax.server.frontend import Frontend
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.server.protocols.sampling import SamplingFields
from ninfer_jax.server.protocols.thinking import ThinkingFields
from ninfer_jax.text.conversation import Conversation
from ninfer_jax.types import ModelInfo


@dataclass(frozen=True, slots=True)
class RequestContext:
    """All that a builder knows of the world; nothing in it reads a clock or the network."""

    request_id: str
    created: int
    """Unix seconds when the request arrived."""
    new_id: Callable[[str], str]
    """``new_id("chatcmpl-")`` gives a fresh ``chatcmpl-...``."""
    new_seed: Callable[[], int]
    model_id: str
    """The public model id."""
    info: ModelInfo
    frontend: Frontend
    options: ServeOptions
    client_request_id: str | None = None
    """What the client calls this request; for the log only."""


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """Everything about a request that is not its conversation; None is "not given"."""

    sampling: SamplingFields = field(default_factory=SamplingFields)
    thinking: ThinkingFields = field(default_factory=ThinkingFields)
    max_output_tokens: int | None = None
    fills_context: bool = False
    """Without a limit of the request or the operator, the answer may fill what is left of the context."""
    stop: tuple[str, ...] = ()
    max_tool_name: int = 64
    """The longest tool name the protocol can carry; a call with a longer one stays text."""
    ignore_eos: bool = False
    """Generate up to the limit whatever the model says; what load generators ask for."""
    session_key: str | None = None
    publish_session: bool = True


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """What a builder makes of a body; the handler renders it and runs it."""

    conversation: Conversation
    settings: GenerationSettings
    stream: bool = False
    ignored: tuple[str, ...] = ()
    """Hints that ``--lenient-api`` dropped; the request's log line names them."""
    changes_semantics: bool = False
    """A Responses request whose stored state does not continue as it was."""
