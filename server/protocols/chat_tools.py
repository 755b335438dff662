"""Tool declarations and tool choice of Chat Completions."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    optional_array,
    optional_boolean,
    optional_object,
    optional_string,
    required_object,
    required_string,
)
from ninfer_jax.server.protocols import tool_choice
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.refusals import unsupported
from ninfer_jax.text.conversation import Tool

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
NAME_RULE = "must be 1 to 64 letters, digits, underscores or hyphens"


def parse_tools(body: JsonObject, hints: Hints) -> list[Tool]:
    """Declared functions, in order. Raises on what would need an executor or constrained output."""
    tools: list[Tool] = []
    for index, item in enumerate(optional_array(body, "tools") or ()):
        path = join("tools", index)
        tool = as_object(item, path)
        kind = required_string(tool, "type", path=path)
        if kind == "function":
            tools.append(_function(tool, path, hints))
        elif kind == "custom":
            raise unsupported(join(path, "type"), "free-form tools need constrained output")
        else:  # a tool of the vendor's own server
            hints.refuse(join(path, "type"), "only function tools have an executor, the client", value=kind)
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise invalid("tools", f"declares {name!r} twice")
    return tools


def _function(tool: JsonObject, path: str, hints: Hints) -> Tool:
    function = required_object(tool, "function", path=path)
    where = join(path, "function")
    name = required_string(function, "name", path=where)
    if not NAME.fullmatch(name):
        raise invalid(join(where, "name"), NAME_RULE)
    optional_string(function, "description", path=where)
    optional_object(function, "parameters", path=where)
    if optional_boolean(function, "strict", path=where):
        hints.refuse(join(where, "strict"), tool_choice.UNCONSTRAINED.format("a schema"))
    definition: Mapping[str, Any] = tool
    if function.get("parameters") is None:
        declared = {key: value for key, value in function.items() if key != "parameters"}
        definition = {
            **tool,
            "function": {**declared, "parameters": {"type": "object", "properties": {}}},
        }
    return Tool(name, definition)


def parse_tool_choice(body: JsonObject, tools: Sequence[Tool]) -> frozenset[str]:
    """Names that may become calls. Raises for a choice that would need constrained output."""
    names = [tool.name for tool in tools]

    def chosen(item: JsonObject, path: str) -> str:
        function = optional_object(item, "function", path=path)
        if function is None:
            name = required_string(item, "name", path=path)
        else:
            name = required_string(function, "name", path=join(path, "function"))
        if name not in names:
            raise invalid(path, f"names {name[:64]!r}, which tools does not declare")
        return name

    return tool_choice.parse_tool_choice(body, names, chosen)
