"""Tool declarations and tool choice of Responses: functions, alone or grouped in namespaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    optional_array,
    optional_boolean,
    optional_object,
    optional_string,
    required_string,
)
from ninfer_jax.server.protocols import tool_choice
from ninfer_jax.server.protocols.chat_tools import NAME, NAME_RULE
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.refusals import unsupported
from ninfer_jax.text.conversation import Tool

MAX_NAME = 129
"""Of the name the model sees: a namespace, a dot, a function."""

NEVER_CALLED = ("web_search", "web_search_preview")
"""Hosted tools that may be declared. Under ``auto`` the model need not call a tool, and it never calls
one that it is not shown."""


@dataclass(frozen=True, slots=True)
class FunctionName:
    """A function as clients name it."""

    name: str
    namespace: str | None = None

    @property
    def internal(self) -> str:
        """As the model sees it. Neither part can hold a dot where it is declared, so no two are alike."""
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"

    def members(self) -> dict[str, str]:
        """The members of an Item that identify the function."""
        named = {"name": self.name}
        return named if self.namespace is None else {"namespace": self.namespace, **named}


@dataclass(slots=True)
class Toolbox:
    """What one request declares. ``echo`` is the ``tools`` member of its Response."""

    names: dict[str, FunctionName] = field(default_factory=dict)
    tools: list[Tool] = field(default_factory=list)
    echo: list[JsonObject] = field(default_factory=list)


def parse_tools(body: JsonObject, hints: Hints) -> Toolbox:
    """Declared functions, in order. Raises on what would need an executor or constrained output."""
    box = Toolbox()
    for index, item in enumerate(optional_array(body, "tools") or ()):
        path = join("tools", index)
        tool = as_object(item, path)
        match required_string(tool, "type", path=path):
            case "function":
                box.echo.append(_add_function(box, tool, None, path, hints))
            case "namespace":
                box.echo.append(_add_namespace(box, tool, path, hints))
            case "custom":
                raise unsupported(join(path, "type"), "free-form tools need constrained output")
            case kind if _is_never_called(kind):
                hints.drop(path)
            case kind:
                hints.refuse(join(path, "type"), f"nobody here runs {kind[:64]!r}; declare functions")
    return box


def _is_never_called(kind: str) -> bool:
    """Also their dated variants, ``web_search_2025_08_26``."""
    return kind in NEVER_CALLED or kind.startswith(tuple(f"{name}_2" for name in NEVER_CALLED))


def _add_namespace(box: Toolbox, group: JsonObject, path: str, hints: Hints) -> JsonObject:
    name = required_string(group, "name", path=path)
    if not NAME.fullmatch(name):
        raise invalid(join(path, "name"), NAME_RULE)
    description = optional_string(group, "description", path=path)
    members: list[JsonObject] = []
    for index, item in enumerate(optional_array(group, "tools", path=path) or ()):
        where = join(join(path, "tools"), index)
        tool = as_object(item, where)
        if required_string(tool, "type", path=where) != "function":
            raise unsupported(join(where, "type"), "a namespace holds functions")
        members.append(_add_function(box, tool, group, where, hints))
    return {"type": "namespace", "name": name, "description": description or "", "tools": members}


def _add_function(
    box: Toolbox, tool: JsonObject, group: JsonObject | None, path: str, hints: Hints
) -> JsonObject:
    """Declare one function; returns it as the Response shows it."""
    name = required_string(tool, "name", path=path)
    if not NAME.fullmatch(name):
        raise invalid(join(path, "name"), NAME_RULE)
    description = optional_string(tool, "description", path=path)
    parameters = optional_object(tool, "parameters", path=path)
    _check_guarantees(hints, tool, path)
    function = FunctionName(name, None if group is None else group["name"])
    if function.internal in box.names:
        raise invalid(join(path, "name"), f"declares {function.internal!r} twice")
    box.names[function.internal] = function
    shown = {key: tool[key] for key in tool if key in ("name", "description", "parameters")}
    shown["name"] = function.internal
    if description is None:
        shown.pop("description", None)
        if group is not None and group.get("description"):
            shown["description"] = group["description"]
    if parameters is None:
        shown["parameters"] = {"type": "object", "properties": {}}
    box.tools.append(Tool(function.internal, {"type": "function", "function": shown}))
    return {
        "type": "function",
        "name": name,
        "description": description,
        "parameters": parameters,
        "strict": False,
    }


def _check_guarantees(hints: Hints, tool: JsonObject, path: str) -> None:
    if optional_boolean(tool, "strict", path=path):
        hints.refuse(join(path, "strict"), tool_choice.UNCONSTRAINED.format("a schema"))
    if optional_boolean(tool, "defer_loading", path=path):
        hints.refuse(join(path, "defer_loading"), "every tool is shown to the model at once")
    if optional_object(tool, "output_schema", path=path) is not None:
        hints.refuse(join(path, "output_schema"), "results are passed on unchecked")
    callers = optional_array(tool, "allowed_callers", path=path)
    if callers is not None and "direct" not in callers:
        hints.refuse(join(path, "allowed_callers"), "only the model itself calls tools; allow direct")


def parse_tool_choice(body: JsonObject, names: Mapping[str, FunctionName]) -> frozenset[str]:
    """Internal names that may become calls. Raises for a choice that would need constrained output."""

    def chosen(item: JsonObject, path: str) -> str:
        if required_string(item, "type", path=path) != "function":
            raise unsupported(join(path, "type"), "only functions can be chosen")
        function = FunctionName(
            required_string(item, "name", path=path), optional_string(item, "namespace", path=path)
        )
        if names.get(function.internal) != function:
            raise invalid(path, f"names {function.internal[:130]!r}, which tools does not declare")
        return function.internal

    return tool_choice.parse_tool_choice(body, names, chosen)
