"""Anthropic content blocks to parts, results and calls; each block under its own path."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    kind_of,
    one_of,
    optional_boolean,
    optional_object,
    optional_string,
    required_object,
    required_string,
)
from ninfer_jax.server.protocols.messages_cache import CacheMarks
from ninfer_jax.server.protocols.refusals import unsupported, vision_disabled
from ninfer_jax.text.conversation import HistoryToolCall, MediaPart, Part, TextPart, Turn

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

MISSING = {
    "document": "documents are not read",
    "search_result": "there are no search results or citations",
    "container_upload": "there are no containers",
    "server_tool_use": "there are no server tools",
    "mcp_tool_use": "there is no MCP connector",
    "mcp_tool_result": "there is no MCP connector",
    "tool_reference": "there is no tool search",
    "redacted_thinking": "encrypted thinking cannot be restored",
    "compaction": "there is no compaction",
}
"""Blocks of the vendor's API that need an executor or a key we do not have."""


@dataclass(frozen=True, slots=True)
class Block:
    """One content block and where it stands in the body."""

    fields: JsonObject
    kind: str
    path: str


def blocks_of(content: Any, path: str) -> Iterator[Block]:
    """A string is one text block."""
    if isinstance(content, str):
        yield Block({"text": content}, "text", path)
        return
    if not isinstance(content, list):
        raise invalid(path, f"must be a string or an array of blocks, not {kind_of(content)}")
    for index, item in enumerate(content):
        where = join(path, index)
        fields = as_object(item, where)
        yield Block(fields, required_string(fields, "type", path=where), where)


@dataclass(frozen=True, slots=True)
class BlockParser:
    has_vision: bool
    marks: CacheMarks

    def text(self, block: Block) -> TextPart:
        text = required_string(block.fields, "text", path=block.path)
        return TextPart(text, breakpoint=self.marks.see(block.fields, block.path, cacheable=bool(text)))

    def part(self, block: Block, place: str) -> Part:
        """A text or, where the place allows it, an image."""
        if block.kind == "text":
            return self.text(block)
        if block.kind == "image" and place in ("user message", "tool result"):
            return self._image(block)
        raise misplaced(block, place)

    def result(self, block: Block) -> Turn:
        """A ``tool_result``; its text and images keep their order."""
        fields, path = block.fields, block.path
        call_id = required_string(fields, "tool_use_id", path=path)
        is_error = optional_boolean(fields, "is_error", path=path) or False
        content = fields.get("content")
        parts: list[Part] = []
        last: str | None = None
        for inner in blocks_of("" if content is None else content, join(path, "content")):
            part = self.part(inner, "tool result")
            if isinstance(part, MediaPart) or part.text:
                parts.append(part)
                last = inner.path
        if self.marks.see_container(fields, path, last):
            parts[-1] = replace(parts[-1], breakpoint=True)
        return Turn("tool", tuple(parts), tool_call_id=call_id, is_error=is_error)

    def call(self, block: Block) -> HistoryToolCall:
        """A ``tool_use`` that the assistant made earlier."""
        fields, path = block.fields, block.path
        call_id = required_string(fields, "id", path=path)
        name = required_string(fields, "name", path=path)
        if not call_id or not name:
            raise invalid(join(path, "name" if call_id else "id"), "must not be empty")
        caller = optional_object(fields, "caller", path=path)
        if caller is not None and caller.get("type") != "direct":
            raise unsupported(join(path, "caller"), "only the assistant itself calls tools")
        arguments = required_object(fields, "input", path=path)
        return HistoryToolCall(call_id, name, arguments, breakpoint=self.marks.see(fields, path))

    def thinking(self, block: Block) -> str:
        """The visible text is the whole thought; the signature is transport and means nothing here."""
        optional_string(block.fields, "signature", path=block.path)
        self.marks.see(block.fields, block.path, cacheable=False)
        return required_string(block.fields, "thinking", path=block.path)

    def _image(self, block: Block) -> MediaPart:
        if not self.has_vision:
            raise vision_disabled(block.path)
        where = join(block.path, "source")
        source = required_object(block.fields, "source", path=block.path)
        kind = required_string(source, "type", path=where)
        marked = self.marks.see(block.fields, block.path)
        if kind == "url":
            return MediaPart("image", required_string(source, "url", path=where), breakpoint=marked)
        if kind == "file":
            raise unsupported(join(where, "type"), "there is no Files API")
        one_of(kind, ("base64", "url"), join(where, "type"))
        media_type = required_string(source, "media_type", path=where)
        one_of(media_type, IMAGE_TYPES, join(where, "media_type"))
        data = required_string(source, "data", path=where)
        return MediaPart("image", f"data:{media_type};base64,{data}", breakpoint=marked)


def misplaced(block: Block, place: str) -> Exception:
    """A block that a place cannot hold: because nothing can, or because it belongs elsewhere."""
    field = join(block.path, "type")
    missing = MISSING.get(block.kind)
    if missing is None and block.kind.endswith("_tool_result"):
        missing = MISSING["server_tool_use"]
    if missing is not None:
        return unsupported(field, missing)
    return invalid(field, f"{block.kind[:64]!r} is not a block of a {place}")
