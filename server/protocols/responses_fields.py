"""The members of a Responses request other than its Items and tools: one row of the contract each."""

from dataclasses import dataclass
from typing import Any

from ninfer_jax.errors import InvalidRequestError, ModelNotFoundError
from ninfer_jax.server.fields import (
    JsonObject,
    invalid,
    join,
    kind_of,
    one_of,
    optional_array,
    optional_boolean,
    optional_integer,
    optional_object,
    optional_string,
    required_string,
)
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.refusals import unsupported
from ninfer_jax.server.protocols.request import RequestContext
from ninfer_jax.server.protocols.sampling import SamplingFields, parse_sampling
from ninfer_jax.server.protocols.thinking import (
    ThinkingFields,
    combine,
    parse_effort,
    parse_template_switches,
)

KNOWN = frozenset(
    [
        "background",
        "chat_template_kwargs",
        "client_metadata",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "parallel_tool_calls",
        "preserve_thinking",
        "previous_response_id",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    ]
)
MISSING = {
    "conversation": "conversations are not kept; use previous_response_id",
    "prompt": "there are no prompt templates",
    "context_management": "histories are never compacted",
    "moderation": "there is no moderation",
}
"""Members of OpenAI's own service whose function this server does not have."""

ENCRYPTED_REASONING = "reasoning.encrypted_content"
HOSTED_RESULTS = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
SUMMARIES = ("auto", "concise", "detailed")
MAX_METADATA = 16
MAX_METADATA_KEY = 64
MAX_METADATA_VALUE = 512


@dataclass(frozen=True, slots=True)
class ResponseFields:
    """What a request says beside its Items and tools; None is "not given"."""

    stream: bool
    store: bool
    instructions: str | None
    previous_response_id: str | None
    max_output_tokens: int | None
    sampling: SamplingFields
    thinking: ThinkingFields
    seals_reasoning: bool
    """Reasoning Items carry ``encrypted_content``."""
    echo: dict[str, Any]
    """Members of the Response that repeat the request."""


def parse_fields(body: JsonObject, context: RequestContext, hints: Hints) -> ResponseFields:
    """Raises RequestError for the first member that is wrong, unknown, or beyond this server."""
    _check_model(body, context.model_id)
    _check_names(body)
    thinking, reasoning = _reasoning(body, context, hints)
    sampling = parse_sampling(body, context.options)
    max_output_tokens = optional_integer(body, "max_output_tokens", 0)
    max_tool_calls = optional_integer(body, "max_tool_calls", 0)
    seals = _include(body, hints)
    _check_output_form(body, hints)
    _check_execution(body, hints)
    instructions = optional_string(body, "instructions")
    previous = optional_string(body, "previous_response_id")
    store = optional_boolean(body, "store")
    echo = {
        "instructions": instructions,
        "max_output_tokens": max_output_tokens,
        "max_tool_calls": max_tool_calls,
        "metadata": _metadata(body),
        "previous_response_id": previous,
        "reasoning": reasoning,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    for name in ("prompt_cache_key", "safety_identifier", "user"):
        value = optional_string(body, name)
        if value is not None:
            echo[name] = value
    return ResponseFields(
        stream=optional_boolean(body, "stream") or False,
        store=True if store is None else store,
        instructions=instructions,
        previous_response_id=previous,
        max_output_tokens=max_output_tokens,
        sampling=sampling,
        thinking=thinking,
        seals_reasoning=seals,
        echo=echo,
    )


def check_parallel(body: JsonObject, num_callable: int, hints: Hints) -> None:
    """``parallel_tool_calls: false`` is a guarantee only where a call is possible."""
    if optional_boolean(body, "parallel_tool_calls") is False and num_callable:
        hints.refuse("parallel_tool_calls", "a single call per answer cannot be enforced")


def _check_model(body: JsonObject, model_id: str) -> None:
    asked = required_string(body, "model")
    if not asked:
        raise invalid("model", "must not be empty")
    if asked != model_id:
        raise ModelNotFoundError(
            f"the model {asked[:200]!r} does not exist; this server has {model_id!r}", field="model"
        )


def _check_names(body: JsonObject) -> None:
    for name, value in body.items():
        if name in KNOWN:
            continue
        if name not in MISSING:
            raise InvalidRequestError(
                f"{name[:100]} is not a member of a Responses request",
                field=name[:100],
                code="unknown_parameter",
            )
        if value is not None:
            raise unsupported(name, MISSING[name])


def _reasoning(
    body: JsonObject, context: RequestContext, hints: Hints
) -> tuple[ThinkingFields, dict[str, Any]]:
    """The thinking switches, and the ``reasoning`` member of the Response. No summaries are written;
    ``auto`` leaves that open, the other values ask for one."""
    asked = optional_object(body, "reasoning") or {}
    for name in asked:
        if name not in ("effort", "summary", "generate_summary") and asked[name] is not None:
            error = unsupported(join("reasoning", name[:100]), "reasoning takes effort and summary")
            hints.refuse_with(error, log_as="reasoning")
    for name in ("summary", "generate_summary"):
        summary = optional_string(asked, name, path="reasoning")
        if summary is not None and one_of(summary, SUMMARIES, join("reasoning", name)) != "auto":
            hints.refuse(join("reasoning", name), "no summaries are written; auto may have none")
    capabilities = context.frontend.capabilities
    effort = parse_effort(
        asked,
        "effort",
        capabilities.efforts if capabilities else (),
        hints,
        path="reasoning",
        advice="; Codex sends what model_reasoning_effort in its config.toml says",
    )
    enable, preserve = parse_template_switches(body, hints)
    thinking = combine(enable, effort, preserve, field="reasoning.effort")
    return thinking, {"effort": effort, "summary": asked.get("summary")}


def _include(body: JsonObject, hints: Hints) -> bool:
    """Whether reasoning Items carry their opaque value; results of tools that do not exist are refused."""
    seals = False
    for index, item in enumerate(optional_array(body, "include") or ()):
        where = join("include", index)
        if item == ENCRYPTED_REASONING:
            seals = True
        elif item in HOSTED_RESULTS:
            hints.refuse(where, f"nothing here produces {item}")
        elif item == "message.output_text.logprobs":
            raise unsupported(where, "log probabilities are not returned")
        else:
            raise invalid(where, "is not a value of include")
    return seals


def _check_output_form(body: JsonObject, hints: Hints) -> None:
    text = optional_object(body, "text") or {}
    form = optional_object(text, "format", path="text")
    if form is not None:
        kind = required_string(form, "type", path="text.format")
        one_of(kind, ("text", "json_object", "json_schema", "grammar"), "text.format.type")
        if kind != "text":
            raise unsupported("text.format", f"{kind} output needs constrained decoding")
    verbosity = optional_string(text, "verbosity", path="text")
    if verbosity is not None and one_of(verbosity, ("low", "medium", "high"), "text.verbosity") != "medium":
        hints.refuse("text.verbosity", "the length of answers cannot be steered")
    if optional_integer(body, "top_logprobs", 0, 20):
        raise unsupported("top_logprobs", "log probabilities are not returned")


def _check_execution(body: JsonObject, hints: Hints) -> None:
    if optional_boolean(body, "background"):
        raise unsupported("background", "responses are generated while the client waits")
    truncation = optional_string(body, "truncation")
    if truncation is not None and one_of(truncation, ("auto", "disabled"), "truncation") == "auto":
        hints.refuse("truncation", "no Item is ever dropped; use disabled")
    tier = optional_string(body, "service_tier")
    if tier not in (None, "auto", "default"):
        hints.refuse("service_tier", "there is one tier; use auto or default")
    stream_options = optional_object(body, "stream_options") or {}
    optional_boolean(stream_options, "include_obfuscation", path="stream_options")
    optional_object(body, "client_metadata")


def _metadata(body: JsonObject) -> dict[str, str]:
    metadata = optional_object(body, "metadata") or {}
    if len(metadata) > MAX_METADATA:
        raise invalid("metadata", f"takes at most {MAX_METADATA} pairs, not {len(metadata)}")
    for name, value in metadata.items():
        if len(name) > MAX_METADATA_KEY:
            raise invalid("metadata", f"takes keys of at most {MAX_METADATA_KEY} characters")
        if not isinstance(value, str):
            raise invalid(join("metadata", name), f"must be a string, not {kind_of(value)}")
        if len(value) > MAX_METADATA_VALUE:
            raise invalid(join("metadata", name), f"must have at most {MAX_METADATA_VALUE} characters")
    return dict(metadata)
