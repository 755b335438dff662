"""JSON that survives a round trip: member order and the spelling of numbers are the client's.

Prompts contain JSON (tool schemas, historical arguments), and a prompt that changes by one byte no longer
matches the state the model holds. So ``1.0`` must not come back as ``1`` nor ``1e2`` as ``100.0``.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

MAX_DEPTH = 128
MAX_INTEGER_DIGITS = 4_000  # int() refuses more than 4,300 by default
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
"""What the fast writers of JSON, the counters and the log can hold as an integer."""

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonError(ValueError):
    """The text is not acceptable JSON; the message says what is wrong, without quoting the text."""


class JsonFloat(float):
    """A number written with a fraction or an exponent, or beyond 64 bits; ``str()`` gives the spelling it
    came in."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> "JsonFloat":
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type["JsonFloat"], tuple[str]]:
        return JsonFloat, (self.text,)


def parse_json(data: bytes | bytearray | str) -> Any:
    """Parse UTF-8 JSON into dicts (received order), lists, str, int (of 64 bits), :class:`JsonFloat`, bool
    and None.

    Raises JsonError for malformed text, NaN and infinities, repeated members and nesting beyond
    ``MAX_DEPTH``. Lone surrogates, which no tokenizer can encode, become U+FFFD.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JsonError(f"the text is not valid UTF-8 (byte {error.start})") from None
    try:
        value = _DECODER.decode(text)
    except JsonError:
        raise
    except json.JSONDecodeError as error:
        raise JsonError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels") from None
    _check_depth(value)
    return _replace_surrogates(value) if _SURROGATE_ESCAPE.search(text) else value


def dump_json(value: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """The JSON text of a value, not escaped to ASCII, each number as it was spelled.

    ``separators`` default to ``(", ", ": ")`` (``(",", ": ")`` with an indent), as in Jinja templates.
    """
    item, key = separators or ((",", ": ") if indent is not None else (", ", ": "))
    return "".join(_write(value, item, key, indent, 0))


def _write(value: Any, item: str, key: str, indent: int | None, level: int) -> Iterable[str]:
    if isinstance(value, JsonFloat):
        yield value.text
        return
    if isinstance(value, dict):
        opening, closing, pairs = (
            "{",
            "}",
            [(json.dumps(str(k), ensure_ascii=False) + key, v) for k, v in value.items()],
        )
    elif isinstance(value, list | tuple):
        opening, closing, pairs = "[", "]", [("", v) for v in value]
    else:
        yield json.dumps(value, ensure_ascii=False)
        return
    if not pairs:
        yield opening + closing
        return
    margin = "" if indent is None else "\n" + " " * (indent * (level + 1))
    for number, (prefix, child) in enumerate(pairs):
        yield (item if number else opening) + margin + prefix
        yield from _write(child, item, key, indent, level + 1)
    yield ("" if indent is None else "\n" + " " * (indent * level)) + closing


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise JsonError("an object names the same member twice")
    return members


def _integer(text: str) -> int | JsonFloat:
    if len(text) > MAX_INTEGER_DIGITS:
        raise JsonError(f"an integer has more than {MAX_INTEGER_DIGITS} digits")
    value = int(text)
    return value if MIN_INTEGER <= value <= MAX_INTEGER else JsonFloat(text)


def _refuse_constant(name: str) -> Any:
    raise JsonError(f"{name} is not a JSON value")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_members,
    parse_float=JsonFloat,
    parse_int=_integer,
    parse_constant=_refuse_constant,
)


def _check_depth(value: Any) -> None:
    layer, depth = [value], 0
    while layer:
        if depth == MAX_DEPTH:
            raise JsonError(f"nested deeper than {MAX_DEPTH} levels")
        layer = [child for parent in layer for child in _children(parent) if isinstance(child, dict | list)]
        depth += 1


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_replace_surrogates(child) for child in value]
    return value
