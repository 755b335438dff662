"""The last step every protocol shares: a conversation and its settings become a generation request."""

from dataclasses import dataclass, field, replace

from ninfer_jax.errors import ContextLengthExceededError
from ninfer_jax.server.frontend import SessionOptions
from ninfer_jax.server.protocols.base import RequestContext
from ninfer_jax.server.protocols.sampling import SamplingFields, resolve_sampling
from ninfer_jax.server.protocols.thinking import ThinkingFields, thinks
from ninfer_jax.text.conversation import Conversation
from ninfer_jax.types import GenerationRequest, PreparedPrompt


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """Everything about a request that is not its conversation."""

    sampling: SamplingFields = field(default_factory=SamplingFields)
    thinking: ThinkingFields = field(default_factory=ThinkingFields)
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    session_key: str | None = None
    publish_session: bool = True


def render(
    context: RequestContext, conversation: Conversation, thinking: ThinkingFields
) -> tuple[Conversation, PreparedPrompt]:
    """The conversation with its template switches resolved, and its prompt.

    Raises ContextLengthExceededError with both counts.
    """
    options, features = context.options, context.frontend.features
    preserve = options.preserve_thinking if thinking.preserve is None else thinking.preserve
    resolved = replace(
        conversation,
        enable_thinking=thinks(thinking, features, options) if features.has_thinking else None,
        preserve_thinking=preserve,
        reasoning_effort=thinking.effort,
    )
    prompt = context.frontend.prepare(resolved)
    num_tokens, limit = len(prompt.token_ids), context.info.max_context
    if num_tokens > limit:
        raise ContextLengthExceededError(
            f"the prompt has {num_tokens} tokens and the context is limited to {limit}", field="messages"
        )
    return resolved, prompt


def lower(
    context: RequestContext, conversation: Conversation, settings: GenerationSettings
) -> GenerationRequest:
    """Resolve every default, render the prompt, open the output session."""
    options = context.options
    thinking = thinks(settings.thinking, context.frontend.features, options)
    budget = settings.thinking.budget or options.default_thinking_budget
    conversation, prompt = render(context, conversation, settings.thinking)
    asked = options.default_max_tokens if settings.max_output_tokens is None else settings.max_output_tokens
    capacity = min(asked, context.info.max_context - len(prompt.token_ids))
    session = context.frontend.open_session(
        conversation,
        prompt,
        SessionOptions(
            stop=settings.stop,
            thinking_budget=budget if thinking else None,
            output_capacity=capacity,
            tolerant_tool_calls=options.tolerant_tool_calls,
        ),
    )
    return GenerationRequest(
        request_id=context.request_id,
        prompt=prompt,
        sampling=resolve_sampling(
            settings.sampling,
            context.frontend.sampling_defaults(thinking=thinking),
            options,
            context.new_seed(),
        ),
        max_output_tokens=asked,
        session=session,
        session_key=settings.session_key,
        publish_session=settings.publish_session,
    )
