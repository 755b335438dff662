"""Tool declarations and tool choice of Responses: functions, alone or grouped in namespaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    required_string,
)
from ninfer_jax.server.protocols.chat_tools import NAME, NAME_RULE
from ninfer_jax.text.conversation import Tool

MAX_NAME = 129
"""Of the name the model sees: a namespace, a dot, a function."""

NEVER_CALLED = ("web_search", "web_search_preview")
"""Hosted tools that may be declared. Under ``auto`` the model need not call a tool, and it never calls
one that it is not shown."""

_UNCONSTRAINED = "is not supported: output is not constrained, so that {} cannot be guaranteed"


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
    ignored: list[str] = field(default_factory=list)


def parse_tools(body: JsonObject, *, lenient: bool) -> Toolbox:
    """Declared functions, in order. Raises on what would need an executor or constrained output."""
    box = Toolbox()
    for index, item in enumerate(optional_array(body, "tools") or ()):
        path = join("tools", index)
        tool = as_object(item, path)
        kind = required_string(tool, "type", path=path)
        match kind:
            case "function":
                box.echo.append(_add_function(box, tool, None, path, lenient))
            case "namespace":
                box.echo.append(_add_namespace(box, tool, path, lenient))
            case _ if _is_never_called(kind) or (lenient and kind != "custom"):
                box.ignored.append(path)
            case _:
                raise _no_executor(kind, path)
    return box


def _is_never_called(kind: str) -> bool:
    """Also their dated variants, ``web_search_2025_08_26``."""
    return kind in NEVER_CALLED or kind.startswith(tuple(f"{name}_2" for name in NEVER_CALLED))


def _add_namespace(box: Toolbox, group: JsonObject, path: str, lenient: bool) -> JsonObject:
    name = required_string(group, "name", path=path)
    if not NAME.fullmatch(name):
        raise invalid(join(path, "name"), NAME_RULE)
    description = optional_string(group, "description", path=path)
    members: list[JsonObject] = []
    for index, item in enumerate(optional_array(group, "tools", path=path) or ()):
        where = join(join(path, "tools"), index)
        tool = as_object(item, where)
        kind = required_string(tool, "type", path=where)
        if kind != "function":
            raise _no_executor(kind, where)
        members.append(_add_function(box, tool, group, where, lenient))
    return {"type": "namespace", "name": name, "description": description or "", "tools": members}


def _add_function(
    box: Toolbox, tool: JsonObject, group: JsonObject | None, path: str, lenient: bool
) -> JsonObject:
    """Declare one function; returns it as the Response shows it."""
    name = required_string(tool, "name", path=path)
    if not NAME.fullmatch(name):
        raise invalid(join(path, "name"), NAME_RULE)
    description = optional_string(tool, "description", path=path)
    parameters = optional_object(tool, "parameters", path=path)
    _check_guarantees(box, tool, path, lenient)
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


def _check_guarantees(box: Toolbox, tool: JsonObject, path: str, lenient: bool) -> None:
    def refuse(name: str, problem: str) -> None:
        where = join(path, name)
        if not lenient:
            raise UnsupportedFeatureError(f"{where} {problem}", field=where)
        box.ignored.append(where)

    if optional_boolean(tool, "strict", path=path):
        refuse("strict", _UNCONSTRAINED.format("a schema"))
    if optional_boolean(tool, "defer_loading", path=path):
        refuse("defer_loading", "is not supported: every tool is shown to the model at once")
    if optional_object(tool, "output_schema", path=path) is not None:
        refuse("output_schema", "is not supported: results are passed on unchecked")
    callers = optional_array(tool, "allowed_callers", path=path)
    if callers is not None and "direct" not in callers:
        refuse("allowed_callers", "is not supported without direct: only the model itself calls tools")


def parse_tool_choice(body: JsonObject, names: Mapping[str, FunctionName]) -> frozenset[str]:
    """Internal names that may become calls. Raises for a choice that would need constrained output."""
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
        _chosen(choice, names, "tool_choice")
        raise _forced("tool_choice")
    raise UnsupportedFeatureError(f"tool_choice of type {kind[:64]!r} is not supported", field="tool_choice")


def _allowed(choice: JsonObject, names: Mapping[str, FunctionName]) -> frozenset[str]:
    mode = required_string(choice, "mode", path="tool_choice")
    one_of(mode, ("auto", "required"), "tool_choice.mode")
    allowed = set()
    for index, item in enumerate(optional_array(choice, "tools", path="tool_choice") or ()):
        where = join("tool_choice.tools", index)
        tool = as_object(item, where)
        if required_string(tool, "type", path=where) != "function":
            raise UnsupportedFeatureError(
                f"{where}.type is not supported: only functions can be chosen", field=join(where, "type")
            )
        allowed.add(_chosen(tool, names, where))
    if mode == "required":
        raise _forced("tool_choice.mode")
    return frozenset(allowed)


def _chosen(item: JsonObject, names: Mapping[str, FunctionName], path: str) -> str:
    name = required_string(item, "name", path=path)
    chosen = FunctionName(name, optional_string(item, "namespace", path=path))
    if names.get(chosen.internal) != chosen:
        raise invalid(path, f"names {chosen.internal[:130]!r}, which tools does not declare")
    return chosen.internal


def _forced(path: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"{path} {_UNCONSTRAINED.format('a call')}; use auto or none", field=path)


def _no_executor(kind: Any, path: str) -> UnsupportedFeatureError:
    where = join(path, "type")
    return UnsupportedFeatureError(
        f"{where} {kind[:64]!r} is not supported: only functions have an executor, the client", field=where
    )
