"""Output Items, folded from deltas; every step is told as an event. One fold serves both modes."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ninfer_jax.server.protocols.responses_items import Item, seal_reasoning
from ninfer_jax.server.protocols.responses_tools import FunctionName
from ninfer_jax.types import Delta, TextDelta

Event = dict[str, Any]
"""A stream event without its sequence number."""


class OutputItems:
    """The Items of one Response, in the order they begin. At most one is open; ``items`` holds the closed."""

    def __init__(
        self, new_id: Callable[[str], str], names: Mapping[str, FunctionName], *, seals_reasoning: bool
    ) -> None:
        self.items: list[Item] = []
        self._new_id = new_id
        self._names = names
        self._seals_reasoning = seals_reasoning
        self._open: _OpenItem | None = None

    def feed(self, delta: Delta) -> Iterator[Event]:
        if isinstance(delta, TextDelta):
            if not delta.text:
                return
            kind = "reasoning" if delta.channel == "reasoning" else "message"
            if self._open is None or self._open.kind != kind:
                yield from self._close("completed")
                yield from self._begin(self._new_text(kind))
            piece = delta.text
        else:
            if delta.name is not None:
                yield from self._close("completed")
                yield from self._begin(self._new_call(delta.name))
            piece = delta.arguments
        assert self._open is not None, "the first piece of a call carries its name"
        if piece:
            yield self._open.delta(piece)

    def close(self, *, cut: bool) -> Iterator[Event]:
        """End the last Item. ``cut``: the output stopped at a limit, not at its end."""
        yield from self._close("incomplete" if cut else "completed")

    def _begin(self, item: "_OpenItem") -> Iterator[Event]:
        self._open = item
        yield from item.begin()

    def _close(self, status: str) -> Iterator[Event]:
        if self._open is not None:
            opened, self._open = self._open, None
            yield from opened.end(status)
            self.items.append(opened.item)

    def _new_text(self, kind: str) -> "_OpenItem":
        if kind == "reasoning":
            return _OpenReasoning(len(self.items), self._new_id("rs_"), self._seals_reasoning)
        return _OpenMessage(len(self.items), self._new_id("msg_"))

    def _new_call(self, name: str) -> "_OpenItem":
        return _OpenCall(len(self.items), self._new_id("fc_"), self._new_id("call_"), self._names[name])


class _OpenItem:
    """An Item whose text is still growing."""

    kind = ""
    stem = ""
    """``response.STEM.delta`` and ``response.STEM.done``."""

    def __init__(self, index: int, item: Item) -> None:
        self.item = item
        self._place = {"item_id": item["id"], "output_index": index}
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def begin(self) -> Iterator[Event]:
        index = self._place["output_index"]
        yield {"type": "response.output_item.added", "output_index": index, "item": dict(self.item)}

    def delta(self, piece: str) -> Event:
        self._pieces.append(piece)
        return {"type": f"response.{self.stem}.delta", **self._place, "delta": piece}

    def end(self, status: str) -> Iterator[Event]:
        self.item["status"] = status
        index = self._place["output_index"]
        yield {"type": "response.output_item.done", "output_index": index, "item": self.item}


class _OpenText(_OpenItem):
    """An Item with one content part."""

    def __init__(self, index: int, item: Item) -> None:
        super().__init__(index, item)
        self._place["content_index"] = 0

    def part(self, text: str) -> Item:
        raise NotImplementedError

    def begin(self) -> Iterator[Event]:
        yield from super().begin()
        yield {"type": "response.content_part.added", **self._place, "part": self.part("")}

    def end(self, status: str) -> Iterator[Event]:
        part = self.part(self.text)
        self.item["content"] = [part]
        yield {"type": f"response.{self.stem}.done", **self._place, "text": self.text}
        yield {"type": "response.content_part.done", **self._place, "part": part}
        yield from super().end(status)


class _OpenReasoning(_OpenText):
    kind, stem = "reasoning", "reasoning_text"

    def __init__(self, index: int, item_id: str, seals: bool) -> None:
        item = {"id": item_id, "type": "reasoning", "status": "in_progress", "summary": [], "content": []}
        super().__init__(index, item)
        self._seals = seals

    def part(self, text: str) -> Item:
        return {"type": "reasoning_text", "text": text}

    def end(self, status: str) -> Iterator[Event]:
        if self._seals:
            self.item["encrypted_content"] = seal_reasoning(self.text)
        yield from super().end(status)


class _OpenMessage(_OpenText):
    kind, stem = "message", "output_text"

    def __init__(self, index: int, item_id: str) -> None:
        item = {"id": item_id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        super().__init__(index, item)

    def part(self, text: str) -> Item:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def delta(self, piece: str) -> Event:
        return {**super().delta(piece), "logprobs": []}

    def end(self, status: str) -> Iterator[Event]:
        for event in super().end(status):
            yield {**event, "logprobs": []} if event["type"] == "response.output_text.done" else event


class _OpenCall(_OpenItem):
    kind, stem = "function_call", "function_call_arguments"

    def __init__(self, index: int, item_id: str, call_id: str, function: FunctionName) -> None:
        item = {
            "id": item_id,
            "type": "function_call",
            "status": "in_progress",
            "call_id": call_id,
            **function.members(),
            "arguments": "",
        }
        super().__init__(index, item)

    def end(self, status: str) -> Iterator[Event]:
        """A call whose arguments are whole is complete, wherever the output was cut after it."""
        arguments = self.text
        self.item["arguments"] = arguments
        yield {
            "type": "response.function_call_arguments.done",
            **self._place,
            "name": self.item["name"],
            "arguments": arguments,
        }
        yield from super().end("completed" if _is_json(arguments) else status)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_int=str, parse_float=str)  # of any size
    except (ValueError, RecursionError):
        return False
    return True
