"""The last step every protocol shares: a conversation and its settings become a generation request."""

from dataclasses import dataclass, field, replace

from ninfer_jax.server.protocols.base import RequestContext
from ninfer_jax.server.protocols.sampling import SamplingFields, resolve_sampling
from ninfer_jax.server.protocols.thinking import ThinkingFields
from ninfer_jax.text.conversation import Conversation
from ninfer_jax.text.frontend import Prepared
from ninfer_jax.types import GenerationRequest


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """Everything about a request that is not its conversation."""

    sampling: SamplingFields = field(default_factory=SamplingFields)
    thinking: ThinkingFields = field(default_factory=ThinkingFields)
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    max_tool_name: int = 64
    """The longest tool name the protocol can carry; a call with a longer one stays text."""
    session_key: str | None = None
    publish_session: bool = True


def render(context: RequestContext, conversation: Conversation, thinking: ThinkingFields) -> Prepared:
    """The prompt of a conversation, its template switches resolved from request and flags."""
    options = context.options
    off = False if options.no_thinking else None
    resolved = replace(
        conversation,
        enable_thinking=off if thinking.enable is None else thinking.enable,
        preserve_thinking=options.preserve_thinking if thinking.preserve is None else thinking.preserve,
        reasoning_effort=thinking.effort,
    )
    return context.frontend.prepare(resolved)


def lower(
    context: RequestContext, conversation: Conversation, settings: GenerationSettings
) -> GenerationRequest:
    """Resolve every default, render the prompt, open the output session."""
    options, frontend = context.options, context.frontend
    prepared = render(context, conversation, settings.thinking)
    asked = options.default_max_tokens if settings.max_output_tokens is None else settings.max_output_tokens
    session = frontend.session(
        prepared,
        stop=settings.stop,
        tolerant=options.tolerant_tool_calls,
        thinking_budget=settings.thinking.budget or options.default_thinking_budget,
        max_output_tokens=asked,
        max_name=settings.max_tool_name,
    )
    defaults = frontend.sampling_defaults(thinking=prepared.thinking)
    return GenerationRequest(
        request_id=context.request_id,
        prompt=prepared.prompt,
        sampling=resolve_sampling(settings.sampling, defaults, options, context.new_seed()),
        max_output_tokens=asked,
        session=session,
        session_key=settings.session_key,
        publish_session=settings.publish_session,
    )
