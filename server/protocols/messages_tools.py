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


def parse_tools(body: JsonObject, marks: CacheMarks, *, lenient: bool, ignored: list[str]) -> list[Tool]:
    """Declared tools, in order. Raises on what would need an executor or constrained output."""
    tools: list[Tool] = []
    for index, item in enumerate(optional_array(body, "tools") or ()):
        path = join("tools", index)
        fields = as_object(item, path)
        kind = optional_string(fields, "type", path=path)
        if kind in (None, "custom"):
            tools.append(_tool(fields, path, marks, lenient=lenient, ignored=ignored))
        elif lenient:
            ignored.append(path)  # a tool of the vendor's own server: nobody would answer it here
        else:
            raise unsupported(
                join(path, "type"), "there is no executor for the vendor's own tools", value=kind
            )
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise invalid("tools", f"declares {name!r} twice")
    return tools


def _tool(fields: JsonObject, path: str, marks: CacheMarks, *, lenient: bool, ignored: list[str]) -> Tool:
    name = required_string(fields, "name", path=path)
    if not _NAME.fullmatch(name):
        raise invalid(join(path, "name"), f"must be 1 to {MAX_NAME} letters, digits, underscores or hyphens")
    optional_string(fields, "description", path=path)
    schema = required_object(fields, "input_schema", path=path)
    if schema.get("type", "object") != "object":
        raise invalid(join(path, "input_schema.type"), "must be object")
    for index, example in enumerate(optional_array(fields, "input_examples", path=path) or ()):
        as_object(example, join(join(path, "input_examples"), index))
    _check_callers(fields, path)
    if optional_boolean(fields, "defer_loading", path=path):
        raise unsupported(
            join(path, "defer_loading"), "there is no tool search that would load deferred tools"
        )
    if optional_boolean(fields, "strict", path=path):
        if not lenient:
            raise unsupported(join(path, "strict"), "output is not constrained to a schema")
        ignored.append(join(path, "strict"))
    shown = {_MEMBERS[key]: value for key, value in fields.items() if key in _MEMBERS and value is not None}
    return Tool(name, {"type": "function", "function": shown}, breakpoint=marks.see(fields, path))


def _check_callers(fields: JsonObject, path: str) -> None:
    callers = optional_array(fields, "allowed_callers", path=path)
    if callers is not None and "direct" not in callers:
        raise unsupported(join(path, "allowed_callers"), "only the model itself calls tools")


def parse_tool_choice(
    body: JsonObject, tools: list[Tool], *, lenient: bool, ignored: list[str]
) -> frozenset[str]:
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
        raise unsupported("tool_choice.type", "a call cannot be enforced; use auto or none", value=kind)
    if single and names:
        if not lenient:
            raise unsupported(
                "tool_choice.disable_parallel_tool_use", "a single call per answer cannot be enforced"
            )
        ignored.append("tool_choice.disable_parallel_tool_use")
    return names


def _check_declared(choice: JsonObject, names: frozenset[str]) -> None:
    name = required_string(choice, "name", path="tool_choice")
    if name not in names:
        raise invalid("tool_choice.name", f"names {name[:64]!r}, which tools does not declare")
