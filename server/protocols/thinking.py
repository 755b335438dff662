"""Whether and how hard a request thinks: one resolution for every protocol."""

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer_jax.errors import InvalidRequestError, UnsupportedFeatureError
from ninfer_jax.server.fields import (
    JsonObject,
    join,
    one_of,
    optional_boolean,
    optional_object,
    optional_string,
)
from ninfer_jax.server.protocols.hints import Hints

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TEMPLATE_SWITCHES = ("enable_thinking", "preserve_thinking")


@dataclass(frozen=True, slots=True)
class ThinkingFields:
    """What a request said. ``effort`` is never ``none``: that is ``enable`` False."""

    enable: bool | None = None
    effort: str | None = None
    preserve: bool | None = None
    budget: int | None = None
    requested_effort: str | None = None
    """The client's own word, for the log."""


def parse_template_switches(body: JsonObject, hints: Hints) -> tuple[bool | None, bool | None]:
    """``enable_thinking`` and ``preserve_thinking``, at the top level or in ``chat_template_kwargs``."""
    kwargs = optional_object(body, "chat_template_kwargs") or {}
    for name, value in kwargs.items():
        if name in TEMPLATE_SWITCHES or value is None:
            continue
        field = join("chat_template_kwargs", name)
        error = UnsupportedFeatureError(
            f"{field} is not a template option this server passes on", field=field
        )
        hints.refuse_with(error, log_as="chat_template_kwargs")
    enable, preserve = (_both_places(body, kwargs, name) for name in TEMPLATE_SWITCHES)
    return enable, preserve


def _both_places(body: JsonObject, kwargs: JsonObject, name: str) -> bool | None:
    top = optional_boolean(body, name)
    nested = optional_boolean(kwargs, name, path="chat_template_kwargs")
    if top is not None and nested is not None and top != nested:
        raise _conflict(name, f"{name} and chat_template_kwargs.{name} contradict each other")
    return nested if top is None else top


def parse_effort(
    body: JsonObject,
    name: str,
    exposed: Sequence[str],
    hints: Hints,
    *,
    path: str = "",
    advice: str = "",
) -> str | None:
    """An effort that the template exposes, or ``none``, or None when nothing was asked. ``advice`` tells
    how the protocol's clients ask for another."""
    field = join(path, name)
    effort = optional_string(body, name, path=path)
    if effort is None:
        return None
    one_of(effort, EFFORTS, field)
    if effort == "none" or effort in exposed:
        return effort
    has = ", ".join(exposed) or "none at all"
    error = UnsupportedFeatureError(
        f"{field} {effort!r} is not an effort of the loaded chat template (it has {has}){advice}",
        field=field,
        code="reasoning_effort_not_supported",
    )
    hints.refuse_with(error)
    return None


def combine(
    enable: bool | None, effort: str | None, preserve: bool | None, *, field: str = "reasoning_effort"
) -> ThinkingFields:
    """One answer from the switch and the effort. Raises on a contradiction."""
    if effort is None:
        return ThinkingFields(enable=enable, preserve=preserve)
    wants = effort != "none"
    if enable is not None and enable != wants:
        raise _conflict("enable_thinking", f"enable_thinking and {field} {effort!r} contradict each other")
    return ThinkingFields(wants, effort if wants else None, preserve, requested_effort=effort)


def _conflict(field: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(message, field=field, code="conflicting_template_option")
