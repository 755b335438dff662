"""Tool declarations and tool choice of Responses: functions, alone or grouped in namespaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    unsupported,
)
from ninfer_jax.server.protocols.chat_tools import NAME, NAME_RULE
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.text.conversation import Tool

MAX_NAME = 129
"""Of the name the model sees: a namespace, a dot, a function."""

NEVER_CALLED = ("web_search", "web_search_preview")
"""Hosted tools that may be declared. Under ``auto`` the model need not call a tool, and it never calls
one that it is not shown."""

_UNCONSTRAINED = "output is not constrained, so that {} cannot be guaranteed"


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

    hints: Hints
    names: dict[str, FunctionName] = field(default_factory=dict)
    tools: list[Tool] = field(default_factory=list)
    echo: list[JsonObject] = field(default_factory=list)


def parse_tools(body: JsonObject, *, lenient: bool) -> Toolbox:
    """Declared functions, in order. Raises on what would need an executor or constrained output."""
    box = Toolbox(Hints(lenient))
    for index, item in enumerate(optional_array(body, "tools") or ()):
        path = join("tools", index)
        tool = as_object(item, path)
        match required_string(tool, "type", path=path):
            case "function":
                box.echo.append(_add_function(box, tool, None, path))
            case "namespace":
                box.echo.append(_add_namespace(box, tool, path))
            case "custom":
                raise unsupported(join(path, "type"), "free-form tools need constrained output")
            case kind if _is_never_called(kind):
                box.hints.ignored.append(path)
            case kind:
                box.hints.refuse(join(path, "type"), f"nobody here runs {kind[:64]!r}; declare functions")
    return box


def _is_never_called(kind: str) -> bool:
    """Also their dated variants, ``web_search_2025_08_26``."""
    return kind in NEVER_CALLED or kind.startswith(tuple(f"{name}_2" for name in NEVER_CALLED))


def _add_namespace(box: Toolbox, group: JsonObject, path: str) -> JsonObject:
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
        members.append(_add_function(box, tool, group, where))
    return {"type": "namespace", "name": name, "description": description or "", "tools": members}


def _add_function(box: Toolbox, tool: JsonObject, group: JsonObject | None, path: str) -> JsonObject:
    """Declare one function; returns it as the Response shows it."""
    name = required_string(tool, "name", path=path)
    if not NAME.fullmatch(name):
        raise invalid(join(path, "name"), NAME_RULE)
    description = optional_string(tool, "description", path=path)
    parameters = optional_object(tool, "parameters", path=path)
    _check_guarantees(box.hints, tool, path)
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
        hints.refuse(join(path, "strict"), _UNCONSTRAINED.format("a schema"))
    if optional_boolean(tool, "defer_loading", path=path):
        hints.refuse(join(path, "defer_loading"), "every tool is shown to the model at once")
    if optional_object(tool, "output_schema", path=path) is not None:
        hints.refuse(join(path, "output_schema"), "results are passed on unchecked")
    callers = optional_array(tool, "allowed_callers", path=path)
    if callers is not None and "direct" not in callers:
        hints.refuse(join(path, "allowed_callers"), "only the model itself calls tools; allow direct")


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
    raise unsupported("tool_choice", f"it cannot be of type {kind[:64]!r}")


def _allowed(choice: JsonObject, names: Mapping[str, FunctionName]) -> frozenset[str]:
    mode = required_string(choice, "mode", path="tool_choice")
    one_of(mode, ("auto", "required"), "tool_choice.mode")
    allowed = set()
    for index, item in enumerate(optional_array(choice, "tools", path="tool_choice") or ()):
        where = join("tool_choice.tools", index)
        tool = as_object(item, where)
        if required_string(tool, "type", path=where) != "function":
            raise unsupported(join(where, "type"), "only functions can be chosen")
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
    return unsupported(path, f"{_UNCONSTRAINED.format('a call')}; use auto or none")
