"""Typing of Qwen's untyped parameter text by the tool's JSON schema.

The schema guides the conversion and never decides whether markup is a call: a value that does not fit
stays in the call, so that the tool can complain and the agent loop goes on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any, NoReturn

_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})


@dataclass(frozen=True, slots=True)
class TypedValue:
    """``text`` is the JSON spelling, None when the parameter is to be left out."""

    text: str | None
    mismatched: bool = False


def admitted_types(schema: object) -> frozenset[str]:
    """JSON types that a parameter's schema names directly, or through an anyOf/oneOf whose every branch
    does; empty when it names none, which means: infer from the text."""
    if not isinstance(schema, Mapping):
        return frozenset()
    if "type" in schema:
        return _named(schema["type"])
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        if isinstance(branches, list) and branches:
            kinds = [_named(b.get("type")) if isinstance(b, Mapping) else frozenset() for b in branches]
            return frozenset().union(*kinds) if all(kinds) else frozenset()
    return frozenset()


def type_value(text: str, types: frozenset[str]) -> TypedValue:
    """Convert a parameter's text, its framing newlines already removed."""
    if "string" in types:
        return TypedValue(encode_basestring(text))
    bare = text.strip()
    if types and not bare:
        return TypedValue(None)
    if "boolean" in types and bare.lower() in ("true", "false"):
        return TypedValue(bare.lower())
    try:
        kind = json_type(bare)
    except ValueError:
        return TypedValue(encode_basestring(text), mismatched=bool(types))
    fits = not types or kind in types or (kind == "integer" and "number" in types)
    return TypedValue(bare, mismatched=not fits)


def json_type(text: str) -> str:
    """The JSON type of a strict JSON document, a whole float counting as integer. Raises ValueError."""
    try:
        value: Any = json.loads(text, parse_int=_Integer, parse_float=_number, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if isinstance(value, _Integer):
        return "integer"
    names = {str: "string", bool: "boolean", dict: "object", list: "array", float: "number"}
    return names.get(type(value), "null")


class _Integer(str):
    """Stands for a whole number of any length, never converted."""


def _number(text: str) -> float | _Integer:
    value = float(text)
    return _Integer(text) if value.is_integer() else value


def _named(kind: object) -> frozenset[str]:
    names = kind if isinstance(kind, list) else [kind]
    known = frozenset(name for name in names if isinstance(name, str) and name in _TYPES)
    return known if len(known) == len(names) else frozenset()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
