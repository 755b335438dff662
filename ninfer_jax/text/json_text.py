"""JSON whose member order and number spelling survive a parse and a print.

Tool schemas and histories are part of the prompt: ``1.0`` must not come back as ``1`` nor ``1e2`` as
``100.0``, or the rendered tokens differ from what the model has in its cache.
"""

import json
import math
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any, NoReturn

MAX_DEPTH = 200
"""Deeper documents are refused; nothing that a person writes comes near."""


class SpelledInt(int):
    """An int that remembers how it was written (``-0``)."""

    text: str

    @classmethod
    def parse(cls, text: str) -> int:
        if len(text) > 4000:  # Python refuses larger conversions, and they take quadratic time
            raise ValueError("a JSON number has more than 4000 digits")
        value = int(text)
        if str(value) == text:
            return value
        spelled = cls(value)
        spelled.text = text
        return spelled


class SpelledFloat(float):
    """A float that remembers how it was written (``1.50``, ``1e2``)."""

    text: str

    @classmethod
    def parse(cls, text: str) -> float:
        value = float(text)
        if repr(value) == text:
            return value
        spelled = cls(value)
        spelled.text = text
        return spelled


def parse_json(data: str | bytes) -> Any:
    """Parse strict JSON (no NaN, no Infinity). Raises ValueError, also for depth over ``MAX_DEPTH``."""
    text = data if isinstance(data, str) else bytes(data).decode("utf-8-sig")
    try:
        value = json.loads(
            text, parse_int=SpelledInt.parse, parse_float=SpelledFloat.parse, parse_constant=_refuse_constant
        )
    except RecursionError as error:
        raise ValueError("the JSON document is nested too deeply") from error
    return value


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """Print as Hugging Face templates do: ``", "`` and ``": "``, no ASCII escapes, order kept.

    Raises TypeError for what JSON cannot hold, ValueError for depth over ``MAX_DEPTH``.
    """
    pieces: list[str] = []
    _write(value, indent, 0, pieces)
    return "".join(pieces)


def _write(value: Any, indent: int | None, depth: int, out: list[str]) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("the JSON document is nested too deeply")
    if isinstance(value, str):
        out.append(encode_basestring(value))
    elif isinstance(value, Mapping):
        _write_items(value.items(), "{}", indent, depth, out)
    elif isinstance(value, list | tuple):
        _write_items(((None, item) for item in value), "[]", indent, depth, out)
    else:
        out.append(_scalar(value))


def _write_items(items: Any, brackets: str, indent: int | None, depth: int, out: list[str]) -> None:
    between = ", " if indent is None else ",\n" + " " * (indent * (depth + 1))
    first = True
    out.append(brackets[0])
    for key, item in items:
        if not first:
            out.append(between)
        elif indent is not None:
            out.append("\n" + " " * (indent * (depth + 1)))
        first = False
        if key is not None:
            out.append(encode_basestring(key if isinstance(key, str) else _scalar(key)) + ": ")
        _write(item, indent, depth + 1, out)
    if not first and indent is not None:
        out.append("\n" + " " * (indent * depth))
    out.append(brackets[1])


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, SpelledInt | SpelledFloat):
        return value.text
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float) and math.isfinite(value):
        return float.__repr__(value)
    raise TypeError(f"{value!r} is not a JSON value")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
