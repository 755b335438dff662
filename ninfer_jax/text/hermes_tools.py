"""Hermes tool calls, the dialect of Qwen2 and Qwen3.

``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``

The arguments are passed on as the model spelled them: order, numbers and white space.
"""

import json
import re
from collections.abc import Generator

from ninfer_jax.text.arguments import json_type
from ninfer_jax.text.tool_region import Call, Malformed, ToolRegionParser

_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING = re.compile(r'["\\]')
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # spans only: convert no number


class HermesToolParser(ToolRegionParser):
    def read_function(self) -> Generator[None, None, Call]:
        cursor = self.cursor
        yield from cursor.skip_space()
        if not cursor.text.startswith("{", cursor.pos):
            raise Malformed(mention=True)
        members = _members((yield from self._object()))
        name, arguments = members.get("name"), members.get("arguments", members.get("parameters", "{}"))
        if name is None or not name.startswith('"'):
            raise Malformed
        called = json.loads(name)
        if arguments.startswith('"'):  # some models encode the object twice
            arguments = json.loads(arguments)
        if _type(arguments) != "object":
            raise Malformed
        return Call(called, arguments, self.identity_problem(called))

    def _object(self) -> Generator[None, None, str]:
        """The text from ``{`` to its ``}``; braces inside strings do not count."""
        cursor = self.cursor
        pieces: list[str] = []
        depth, in_string = 0, False
        while True:
            found = (_STRING if in_string else _STRUCTURE).search(cursor.text, cursor.pos)
            stop = found.end() if found else len(cursor.text)
            escaped = in_string and found is not None and found[0] == "\\"
            if escaped:
                stop += 1  # the escaped character may not be here yet
            if found is None or stop > len(cursor.text):
                if cursor.closed:
                    raise Malformed
                if found is None:
                    pieces.append(cursor.text[cursor.pos :])
                    cursor.pos = stop
                yield
                continue
            pieces.append(cursor.text[cursor.pos : stop])
            cursor.pos = stop
            if escaped:
                continue
            if found[0] == '"':
                in_string = not in_string
            else:
                depth += 1 if found[0] in "{[" else -1
                if not depth:
                    return "".join(pieces)


def _members(text: str) -> dict[str, str]:
    """The spelling of each value of a JSON object. Raises Malformed; the first of equal keys counts."""
    members: dict[str, str] = {}
    if _type(text) != "object":
        raise Malformed
    at = _after_space(text, 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _after_space(text, _after_space(text, at) + 1)
        _, end = _DECODER.raw_decode(text, start)
        members.setdefault(key, text[start:end])
        at = _after_space(text, end)
        at = _after_space(text, at + 1) if text[at] == "," else at
    return members


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _type(text: str) -> str:
    try:
        return json_type(text)
    except ValueError:
        return "invalid"
