"""OpenAI's ``tool_choice``, alike in Chat Completions and Responses but for how a function is named."""

from collections.abc import Callable, Iterable, Mapping

from ninfer_jax.errors import UnsupportedFeatureError
from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    kind_of,
    one_of,
    optional_array,
    required_string,
)
from ninfer_jax.server.protocols.refusals import unsupported

UNCONSTRAINED = "output is not constrained, so that {} cannot be guaranteed"

Chosen = Callable[[JsonObject, str], str]
"""(object that names a function, its path) -> the name the model sees. Raises when it is not declared."""


def parse_tool_choice(body: JsonObject, names: Iterable[str], chosen: Chosen) -> frozenset[str]:
    """Which of ``names`` may become calls. Raises for a choice that would need constrained output."""
    choice = body.get("tool_choice")
    if choice is None or choice == "auto":
        return frozenset(names)
    if choice == "none":
        return frozenset()
    if isinstance(choice, str):
        one_of(choice, ("auto", "none", "required"), "tool_choice")
        raise _forced("tool_choice")
    if not isinstance(choice, Mapping):
        raise invalid("tool_choice", f"must be a string or an object, not {kind_of(choice)}")
    kind = required_string(choice, "type", path="tool_choice")
    if kind == "allowed_tools":
        return _allowed(choice, chosen)
    if kind == "function":
        chosen(choice, "tool_choice")
        raise _forced("tool_choice")
    raise unsupported("tool_choice", f"it cannot be of type {kind[:64]!r}")


def _allowed(choice: JsonObject, chosen: Chosen) -> frozenset[str]:
    """Chat nests the rule in a member of its own, Responses does not."""
    nested = choice.get("allowed_tools")
    rule, path = choice, "tool_choice"
    if nested is not None:
        path = "tool_choice.allowed_tools"
        rule = as_object(nested, path)
    mode = one_of(required_string(rule, "mode", path=path), ("auto", "required"), join(path, "mode"))
    tools = optional_array(rule, "tools", path=path) or ()
    paths = [join(join(path, "tools"), index) for index in range(len(tools))]
    allowed = frozenset(chosen(as_object(tool, at), at) for tool, at in zip(tools, paths, strict=True))
    if mode == "required":
        raise _forced(join(path, "mode"))
    return allowed


def _forced(path: str) -> UnsupportedFeatureError:
    return unsupported(path, f"{UNCONSTRAINED.format('a call')}; use auto or none")
