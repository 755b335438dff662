"""The last step every protocol shares: a prepared request becomes a generation request."""

from dataclasses import replace

from ninfer_jax.observe.requests import RequestShape
from ninfer_jax.server.flag_table import DEFAULT_MAX_TOKENS
from ninfer_jax.server.protocols.request import GenerationSettings, PreparedRequest, RequestContext
from ninfer_jax.server.protocols.sampling import resolve_sampling
from ninfer_jax.server.protocols.thinking import ThinkingFields
from ninfer_jax.text.conversation import Conversation, MediaPart
from ninfer_jax.text.frontend import Prepared
from ninfer_jax.types import GenerationRequest


def render(context: RequestContext, conversation: Conversation, thinking: ThinkingFields) -> Prepared:
    """The prompt of a conversation, its template switches resolved from request and flags."""
    options = context.options
    resolved = replace(
        conversation,
        enable_thinking=_switch(context, thinking),
        preserve_thinking=options.preserve_thinking if thinking.preserve is None else thinking.preserve,
        reasoning_effort=thinking.effort,
    )
    return context.frontend.prepare(resolved)


def lower(context: RequestContext, request: PreparedRequest) -> GenerationRequest:
    """Resolve every default, render the prompt, open the output session."""
    options, frontend, settings = context.options, context.frontend, request.settings
    prepared = render(context, request.conversation, settings.thinking)
    asked = _max_output_tokens(context, settings)
    session = frontend.session(
        prepared,
        stop=settings.stop,
        tolerant=options.tolerant_tool_calls,
        thinking_budget=_budget(context, settings.thinking),
        max_output_tokens=asked,
        max_name=settings.max_tool_name,
        ignore_eos=settings.ignore_eos,
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


def shape_of(protocol: str, context: RequestContext, request: PreparedRequest) -> RequestShape:
    """The facts of a request that logs may hold."""
    thinking, capabilities = request.settings.thinking, context.frontend.capabilities
    thinks = capabilities is not None and capabilities.thinking and _switch(context, thinking) is not False
    default_effort = capabilities.default_effort if capabilities else None
    conversation = request.conversation
    return RequestShape(
        protocol=protocol,
        stream=request.stream,
        num_messages=len(conversation.turns),
        num_tools=len(conversation.tools),
        num_media_items=sum(
            isinstance(part, MediaPart) for turn in conversation.turns for part in turn.parts
        ),
        is_thinking=thinks,
        requested_effort=thinking.requested_effort,
        resolved_effort=(thinking.effort or default_effort) if thinks else "none",
        thinking_budget=_budget(context, thinking) if thinks else None,
        changes_semantics=request.changes_semantics,
        ignored=request.ignored,
        client_request_id=context.client_request_id,
    )


def _max_output_tokens(context: RequestContext, settings: GenerationSettings) -> int:
    """Request over flag over default; the engine clamps to what the context has left."""
    asked = settings.max_output_tokens
    if asked is None:
        asked = context.options.default_max_tokens
    if asked is None:
        asked = context.info.max_context if settings.fills_context else DEFAULT_MAX_TOKENS
    return asked


def _switch(context: RequestContext, thinking: ThinkingFields) -> bool | None:
    """None leaves the switch to the template's own default."""
    if thinking.enable is not None:
        return thinking.enable
    return False if context.options.no_thinking else None


def _budget(context: RequestContext, thinking: ThinkingFields) -> int | None:
    return thinking.budget or context.options.default_thinking_budget
