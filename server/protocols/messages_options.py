"""The members of a Messages request beside its prompt: thinking, sampling, limits, what we cannot do."""

from typing import Any

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
from ninfer_jax.server.flag_table import DEFAULT_MAX_TOKENS
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.refusals import unsupported
from ninfer_jax.server.protocols.request import RequestContext
from ninfer_jax.server.protocols.sampling import SamplingFields
from ninfer_jax.server.protocols.thinking import ThinkingFields, parse_effort

MIN_BUDGET = 1024
MAX_STOP_SEQUENCES = 64
EFFORTS = ("low", "medium", "high", "xhigh", "max")


def required_model(body: JsonObject) -> str:
    """Any label: it is echoed and selects nothing."""
    model = required_string(body, "model")
    if not model:
        raise invalid("model", "must not be empty")
    return model


def check_capabilities(body: JsonObject) -> None:
    """Raise for the first member that needs an executor or a constraint that is not here."""
    if body.get("container") is not None:
        raise unsupported("container", "there are no containers")
    if optional_array(body, "mcp_servers"):
        raise unsupported("mcp_servers", "there is no MCP connector")
    if body.get("output_format") is not None:
        raise unsupported("output_format", "structured output needs constrained decoding")
    if (optional_object(body, "output_config") or {}).get("format") is not None:
        raise unsupported("output_config.format", "structured output needs constrained decoding")


def parse_thinking(
    body: JsonObject, context: RequestContext, *, continues: bool, hints: Hints
) -> ThinkingFields:
    """Thinking mode, budget and effort. ``continues``: the request ends with an assistant prefill."""
    config = optional_object(body, "thinking")
    enable, budget = _mode(config) if config is not None else (None, None)
    if continues:
        if enable:
            raise invalid("thinking", "cannot be on when the last message is an assistant prefill")
        enable = False
    effort = _effort(body, context, hints)
    return ThinkingFields(
        enable=enable,
        effort=None if enable is False else effort,
        preserve=optional_boolean(body, "preserve_thinking"),
        budget=budget,
        requested_effort=effort,
    )


def _mode(config: JsonObject) -> tuple[bool, int | None]:
    kind = required_string(config, "type", path="thinking")
    one_of(kind, ("disabled", "adaptive", "enabled"), "thinking.type")
    if kind == "disabled":
        return False, None
    display = optional_string(config, "display", path="thinking")
    if display is not None and one_of(display, ("summarized", "omitted"), "thinking.display") == "omitted":
        raise unsupported("thinking.display", "hidden thinking could not be restored in a later request")
    if kind == "adaptive":
        return True, None
    budget = optional_integer(config, "budget_tokens", MIN_BUDGET, path="thinking")
    if budget is None:
        raise invalid("thinking.budget_tokens", "is required when thinking is enabled")
    return True, budget


def _effort(body: JsonObject, context: RequestContext, hints: Hints) -> str | None:
    config = optional_object(body, "output_config") or {}
    asked = optional_string(config, "effort", path="output_config")
    if asked is None:
        return None
    one_of(asked, EFFORTS, "output_config.effort")
    capabilities = context.frontend.capabilities
    exposed = capabilities.efforts if capabilities else ()
    advice = "; Claude Code sends none with CLAUDE_CODE_EFFORT_LEVEL=auto in its environment"
    return parse_effort(config, "effort", exposed, hints, path="output_config", advice=advice)


def parse_max_tokens(body: JsonObject, options: ServeOptions, budget: int | None) -> int | None:
    """None leaves it to ``--default-max-tokens``. A thinking budget must leave room for an answer."""
    asked = optional_integer(body, "max_tokens", 1)
    limit = asked or options.default_max_tokens or DEFAULT_MAX_TOKENS
    if budget is not None and budget >= limit:
        raise invalid("thinking.budget_tokens", f"must be less than max_tokens, which is {limit}")
    return asked


def parse_sampling(body: JsonObject, options: ServeOptions) -> SamplingFields:
    return SamplingFields(
        temperature=optional_number(body, "temperature", 0, 1),
        top_p=optional_number(body, "top_p", 0, 1),
        top_k=optional_integer(body, "top_k", 0, options.top_k_cap),
    )


def parse_stop_sequences(body: JsonObject) -> tuple[str, ...]:
    stops = optional_array(body, "stop_sequences") or ()
    if len(stops) > MAX_STOP_SEQUENCES:
        raise invalid("stop_sequences", f"takes at most {MAX_STOP_SEQUENCES} strings, not {len(stops)}")
    for index, stop in enumerate(stops):
        _check_stop(stop, join("stop_sequences", index))
    return tuple(stops)


def _check_stop(stop: Any, path: str) -> None:
    if not isinstance(stop, str):
        raise invalid(path, f"must be a string, not {kind_of(stop)}")
    if not stop:
        raise invalid(path, "must not be empty")
