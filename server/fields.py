"""Typed reading of request members. A wrong value is an InvalidRequestError that names its member.

``null`` counts as absent everywhere: clients send it for what they leave unset.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ninfer_jax.errors import InvalidRequestError

JsonObject = Mapping[str, Any]


def join(path: str, name: str | int) -> str:
    """The client's own spelling of a nested member: ``messages[2].content``."""
    if isinstance(name, int):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def invalid(field: str, problem: str, *, code: str | None = None) -> InvalidRequestError:
    return InvalidRequestError(f"{field} {problem}", field=field, code=code)


def kind_of(value: Any) -> str:
    """A JSON value's type in JSON's words, for messages; never the value itself."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, Mapping) else "an array"


def optional_integer(
    body: JsonObject, name: str, low: int, high: int | None = None, *, path: str = ""
) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    span = f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(join(path, name), f"must be {span}, not {kind_of(value)}")
    if value < low or (high is not None and value > high):
        raise invalid(join(path, name), f"must be {span}")
    return value


def optional_number(body: JsonObject, name: str, low: float, high: float, *, path: str = "") -> float | None:
    value = body.get(name)
    if value is None:
        return None
    span = f"a number from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(join(path, name), f"must be {span}, not {kind_of(value)}")
    if not low <= value <= high or math.isnan(value):
        raise invalid(join(path, name), f"must be {span}")
    return float(value)


def optional_boolean(body: JsonObject, name: str, *, path: str = "") -> bool | None:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise invalid(join(path, name), f"must be a boolean, not {kind_of(value)}")


def optional_string(body: JsonObject, name: str, *, path: str = "") -> str | None:
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise invalid(join(path, name), f"must be a string, not {kind_of(value)}")


def required_string(body: JsonObject, name: str, *, path: str = "") -> str:
    value = optional_string(body, name, path=path)
    if value is None:
        raise invalid(join(path, name), "is required and must be a string")
    return value


def optional_object(body: JsonObject, name: str, *, path: str = "") -> JsonObject | None:
    value = body.get(name)
    if value is None or isinstance(value, Mapping):
        return value
    raise invalid(join(path, name), f"must be an object, not {kind_of(value)}")


def required_object(body: JsonObject, name: str, *, path: str = "") -> JsonObject:
    value = optional_object(body, name, path=path)
    if value is None:
        raise invalid(join(path, name), "is required and must be an object")
    return value


def optional_array(body: JsonObject, name: str, *, path: str = "") -> Sequence[Any] | None:
    value = body.get(name)
    if value is None or isinstance(value, list):
        return value
    raise invalid(join(path, name), f"must be an array, not {kind_of(value)}")


def as_object(value: Any, field: str) -> JsonObject:
    """An array element that must be an object."""
    if isinstance(value, Mapping):
        return value
    raise invalid(field, f"must be an object, not {kind_of(value)}")


def one_of(value: str, allowed: Sequence[str], field: str) -> str:
    if value in allowed:
        return value
    raise invalid(field, f"must be one of {', '.join(allowed)}")
