"""Members whose behaviour this engine cannot give: refused by name when asked for, fine when neutral."""

from collections.abc import Mapping

from ninfer_jax.server.fields import (
    JsonObject,
    invalid,
    join,
    kind_of,
    one_of,
    optional_array,
    optional_boolean,
    optional_integer,
    optional_number,
    optional_object,
    optional_string,
    required_string,
)
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.refusals import unsupported

CONSTRAINTS = (
    "grammar",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
)
VERBOSITIES = ("low", "medium", "high")


def check_capabilities(body: JsonObject, num_callable: int, hints: Hints) -> None:
    """Raise for the first member that asks for what we lack."""
    _check_output_form(body)
    _check_probabilities(body)
    _check_legacy_functions(body)
    _check_neutral_only(body)
    _check_hints(body, num_callable, hints)


def _check_output_form(body: JsonObject) -> None:
    if optional_integer(body, "n", 1) not in (None, 1):
        raise unsupported("n", "one choice is generated per request")
    modalities = optional_array(body, "modalities") or ()
    for index, modality in enumerate(modalities):
        if modality != "text":
            raise unsupported(join("modalities", index), "output is text only")
    optional_object(body, "audio")
    wanted = optional_object(body, "response_format")
    if wanted is not None:
        kind = required_string(wanted, "type", path="response_format")
        one_of(kind, ("text", "json_object", "json_schema"), "response_format.type")
        if kind != "text":
            raise unsupported("response_format", f"{kind} output needs constrained decoding")
    for name in CONSTRAINTS:
        if body.get(name) is not None:
            raise unsupported(name, "output is not constrained")


def _check_probabilities(body: JsonObject) -> None:
    bias = optional_object(body, "logit_bias") or {}
    for token, value in bias.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise invalid(join("logit_bias", token[:32]), f"must be a number, not {kind_of(value)}")
        if value != 0:
            raise unsupported("logit_bias", "logits are not biased")
    if optional_boolean(body, "logprobs"):
        raise unsupported("logprobs", "log probabilities are not returned")
    if optional_integer(body, "top_logprobs", 0):
        raise unsupported("top_logprobs", "log probabilities are not returned")


def _check_legacy_functions(body: JsonObject) -> None:
    if optional_array(body, "functions"):
        raise unsupported("functions", "declare them as tools")
    choice = body.get("function_call")
    if choice is None or choice in ("none", "auto"):
        return
    if isinstance(choice, str | Mapping):
        raise unsupported("function_call", "use tools and tool_choice")
    raise invalid("function_call", f"must be a string or an object, not {kind_of(choice)}")


def _check_neutral_only(body: JsonObject) -> None:
    if optional_number(body, "repetition_penalty", 0, 1e9) not in (None, 1.0):
        raise unsupported("repetition_penalty", "it is accepted at 1 only; use presence_penalty")
    for name, value in (optional_object(body, "mm_processor_kwargs") or {}).items():
        if value is not None:
            raise unsupported(
                join("mm_processor_kwargs", name[:64]), "media processing is fixed by the model"
            )
    if body.get("web_search_options") is not None:
        raise unsupported("web_search_options", "there is no web search")
    if body.get("moderation") is not None:
        raise unsupported("moderation", "there is no moderation")


def _check_hints(body: JsonObject, num_callable: int, hints: Hints) -> None:
    if optional_boolean(body, "parallel_tool_calls") is False and num_callable:
        hints.refuse("parallel_tool_calls", "a single call per answer cannot be enforced")
    verbosity = optional_string(body, "verbosity")
    if verbosity is not None and one_of(verbosity, VERBOSITIES, "verbosity") != "medium":
        hints.refuse("verbosity", "the length of answers cannot be steered")
    if optional_boolean(body, "store"):
        hints.refuse("store", "Chat Completions are not stored; use the Responses endpoint")
