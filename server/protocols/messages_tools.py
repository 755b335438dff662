"""Tool declarations and tool choice of Anthropic Messages."""

import re

from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    one_of,
    optional_array,
    optional_boolean,
    optional_object,
    optional_string,
    required_object,
    required_string,
)
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.messages_cache import CacheMarks
from ninfer_jax.server.protocols.refusals import unsupported
from ninfer_jax.text.conversation import Tool

MAX_NAME = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MEMBERS = {
    "name": "name",
    "description": "description",
    "input_schema": "parameters",
    "input_examples": "input_examples",
}
"""What of a declaration the prompt shows, and under which name templates know it."""


def parse_tools(body: JsonObject, marks: CacheMarks, hints: Hints) -> list[Tool]:
    """Declared tools, in order. Raises on what would need an executor or constrained output."""
    tools: list[Tool] = []
    for index, item in enumerate(optional_array(body, "tools") or ()):
        path = join("tools", index)
        fields = as_object(item, path)
        kind = optional_string(fields, "type", path=path)
        if kind in (None, "custom"):
            tools.append(_tool(fields, path, marks, hints))
        else:
            hints.refuse(
                join(path, "type"), f"nobody here runs {kind[:64]!r}; declare tools with an input_schema"
            )
    declared: set[str] = set()
    for tool in tools:
        if tool.name in declared:
            raise invalid("tools", f"declares {tool.name!r} twice")
        declared.add(tool.name)
    return tools


def _tool(fields: JsonObject, path: str, marks: CacheMarks, hints: Hints) -> Tool:
    name = required_string(fields, "name", path=path)
    if not _NAME.fullmatch(name):
        raise invalid(join(path, "name"), f"must be 1 to {MAX_NAME} letters, digits, underscores or hyphens")
    optional_string(fields, "description", path=path)
    schema = required_object(fields, "input_schema", path=path)
    if schema.get("type", "object") != "object":
        raise invalid(join(path, "input_schema.type"), "must be object")
    for index, example in enumerate(optional_array(fields, "input_examples", path=path) or ()):
        as_object(example, join(join(path, "input_examples"), index))
    callers = optional_array(fields, "allowed_callers", path=path)
    if callers is not None and "direct" not in callers:
        hints.refuse(join(path, "allowed_callers"), "only the model itself calls tools; allow direct")
    if optional_boolean(fields, "defer_loading", path=path):
        hints.refuse(join(path, "defer_loading"), "there is no tool search; every tool is shown at once")
    if optional_boolean(fields, "strict", path=path):
        hints.refuse(join(path, "strict"), "output is not constrained to a schema")
    shown = {_MEMBERS[key]: value for key, value in fields.items() if key in _MEMBERS and value is not None}
    return Tool(name, {"type": "function", "function": shown}, breakpoint=marks.see(fields, path))


def parse_tool_choice(body: JsonObject, tools: list[Tool], hints: Hints) -> frozenset[str]:
    """Names that may become calls. Raises for a choice that would need constrained output."""
    names = frozenset(tool.name for tool in tools)
    choice = optional_object(body, "tool_choice")
    if choice is None:
        return names
    kind = required_string(choice, "type", path="tool_choice")
    one_of(kind, ("auto", "any", "tool", "none"), "tool_choice.type")
    single = optional_boolean(choice, "disable_parallel_tool_use", path="tool_choice")
    if kind == "none":
        return frozenset()
    if kind == "tool":
        _check_declared(choice, names)
    if kind != "auto":
        raise unsupported("tool_choice.type", f"the choice {kind!r} cannot be enforced; use auto or none")
    if single and names:
        hints.refuse("tool_choice.disable_parallel_tool_use", "a single call per answer cannot be enforced")
    return names


def _check_declared(choice: JsonObject, names: frozenset[str]) -> None:
    name = required_string(choice, "name", path="tool_choice")
    if name not in names:
        raise invalid("tool_choice.name", f"names {name[:64]!r}, which tools does not declare")
