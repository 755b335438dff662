"""Tool declarations and tool choice of Chat Completions."""

import re
from collections.abc import Mapping
from typing import Any

from ninfer_jax.errors import UnsupportedFeatureError
from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    kind_of,
    one_of,
    optional_array,
    optional_boolean,
    optional_object,
    optional_string,
    required_object,
    required_string,
)
from ninfer_jax.text.conversation import Tool

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
NAME_RULE = "must be 1 to 64 letters, digits, underscores or hyphens"
_UNCONSTRAINED = "output is not constrained, so that {} cannot be guaranteed"


def parse_tools(body: JsonObject, *, lenient: bool, ignored: list[str]) -> list[Tool]:
    """Declared functions, in order. Raises on what would need an executor or constrained output."""
    tools: list[Tool] = []
    for index, item in enumerate(optional_array(body, "tools") or ()):
        path = join("tools", index)
        tool = as_object(item, path)
        kind = required_string(tool, "type", path=path)
        if kind == "function":
            tools.append(_function(tool, path, lenient=lenient, ignored=ignored))
        elif lenient and kind != "custom":
            ignored.append(path)  # a tool of the vendor's own server: nobody would answer it here
        else:
            field = join(path, "type")
            raise UnsupportedFeatureError(
                f"{field} {kind[:64]!r} is not supported: only function tools have an executor, the client",
                field=field,
            )
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise invalid("tools", f"declares {name!r} twice")
    return tools


def _function(tool: JsonObject, path: str, *, lenient: bool, ignored: list[str]) -> Tool:
    function = required_object(tool, "function", path=path)
    where = join(path, "function")
    name = required_string(function, "name", path=where)
    if not NAME.fullmatch(name):
        raise invalid(join(where, "name"), NAME_RULE)
    optional_string(function, "description", path=where)
    optional_object(function, "parameters", path=where)
    if optional_boolean(function, "strict", path=where):
        if not lenient:
            raise UnsupportedFeatureError(
                f"{where}.strict is not supported: {_UNCONSTRAINED.format('a schema')}",
                field=f"{where}.strict",
            )
        ignored.append(f"{where}.strict")
    definition: Mapping[str, Any] = tool
    if function.get("parameters") is None:
        declared = {key: value for key, value in function.items() if key != "parameters"}
        definition = {
            **tool,
            "function": {**declared, "parameters": {"type": "object", "properties": {}}},
        }
    return Tool(name, definition)


def parse_tool_choice(body: JsonObject, tools: list[Tool]) -> frozenset[str]:
    """Names that may become calls. Raises for a choice that would need constrained output."""
    names = [tool.name for tool in tools]
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
        return _allowed(choice, names)
    if kind == "function":
        _declared(_chosen_name(choice, "tool_choice"), names, "tool_choice")
        raise _forced("tool_choice")
    raise UnsupportedFeatureError(f"tool_choice of type {kind[:64]!r} is not supported", field="tool_choice")


def _allowed(choice: JsonObject, names: list[str]) -> frozenset[str]:
    nested = optional_object(choice, "allowed_tools", path="tool_choice")
    rule, path = (choice, "tool_choice") if nested is None else (nested, "tool_choice.allowed_tools")
    mode = one_of(required_string(rule, "mode", path=path), ("auto", "required"), join(path, "mode"))
    allowed: set[str] = set()
    for index, item in enumerate(optional_array(rule, "tools", path=path) or ()):
        where = join(join(path, "tools"), index)
        name = _chosen_name(as_object(item, where), where)
        _declared(name, names, where)
        allowed.add(name)
    if mode == "required":
        raise _forced(join(path, "mode"))
    return frozenset(allowed)


def _chosen_name(item: JsonObject, path: str) -> str:
    function = optional_object(item, "function", path=path)
    if function is None:
        return required_string(item, "name", path=path)
    return required_string(function, "name", path=join(path, "function"))


def _declared(name: str, names: list[str], path: str) -> None:
    if name not in names:
        raise invalid(path, f"names {name[:64]!r}, which tools does not declare")


def _forced(path: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{path} is not supported: {_UNCONSTRAINED.format('a call')}; use auto or none", field=path
    )
