"""Qwen's XML tool calls.

``<tool_call><function=NAME><parameter=KEY>VALUE</parameter>...</function></tool_call>``

The wire format has no escapes. A value keeps every marker byte for byte, including balanced
``<parameter=...>...</parameter>`` pairs; an unmatched opener or a lone ``</parameter>`` cannot be told
from structure and makes the region malformed.
"""

from collections.abc import Generator
from json.encoder import encode_basestring

from ninfer_jax.text.arguments import admitted_types, type_value
from ninfer_jax.text.tool_region import OPENER, Call, Malformed, ToolRegionParser

_FUNCTION = "<function="
_FUNCTION_END = "</function>"
_PARAMETER = "<parameter="
_PARAMETER_END = "</parameter>"


class QwenToolParser(ToolRegionParser):
    starters = (OPENER, _FUNCTION)

    def read_function(self) -> Generator[None, None, Call]:
        cursor = self.cursor
        yield from cursor.skip_space()
        if not (yield from cursor.accept(_FUNCTION)):
            raise Malformed(mention=True)
        name = yield from cursor.name()
        if name is None:
            raise Malformed
        problem = self.identity_problem(name)
        values: dict[str, str] = {}
        if problem != "none":
            self.region_is_text()
        while True:
            yield from cursor.skip_space()
            tag = yield from cursor.accept(_PARAMETER, _FUNCTION_END)
            if tag == _FUNCTION_END:
                return self._call(name, values) if problem == "none" else Call(name, "", problem)
            key = (yield from cursor.name()) if tag else None
            if key is None:
                raise Malformed
            if key in values and problem == "none":
                problem = "duplicate_parameter"
                self.region_is_text()
            values[key] = yield from self._value()

    def _value(self) -> Generator[None, None, str]:
        """The text up to the ``</parameter>`` that balances the opener, framing newlines removed."""
        cursor = self.cursor
        pieces: list[str] = []
        depth = 1
        while True:
            at = cursor.text.find("<", cursor.pos)
            end = len(cursor.text) if at < 0 else at
            pieces.append(cursor.text[cursor.pos : end])
            cursor.pos = end
            if at < 0:
                if cursor.closed:
                    raise Malformed
                yield
                continue
            tag = yield from cursor.accept(_PARAMETER, _PARAMETER_END)
            if tag == _PARAMETER_END:
                depth -= 1
                if not depth:
                    return "".join(pieces).removeprefix("\n").removesuffix("\n")
                pieces.append(tag)
            elif tag == _PARAMETER:
                key = yield from cursor.name()
                depth += key is not None
                pieces.append(tag if key is None else f"{tag}{key}>")
            else:
                pieces.append("<")
                cursor.pos += 1

    def _call(self, name: str, values: dict[str, str]) -> Call:
        properties = self.tools[name].parameters.get("properties")
        schemas = properties if isinstance(properties, dict) else {}
        typed = [(key, type_value(text, admitted_types(schemas.get(key)))) for key, text in values.items()]
        members = [
            f"{encode_basestring(key)}: {value.text}" for key, value in typed if value.text is not None
        ]
        return Call(
            name,
            "{" + ", ".join(members) + "}",
            omitted=len(typed) - len(members),
            mismatched=sum(value.mismatched for _, value in typed),
        )
