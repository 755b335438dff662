"""Anthropic stream events from engine events: one block open at a time, each opened, filled and closed."""

from collections.abc import Callable, Iterator
from typing import Any

from ninfer_jax.server.protocols.messages_objects import Signature, final_usage, input_usage, stop_members
from ninfer_jax.server.sse import Frame
from ninfer_jax.types import Admitted, Delta, Finished, Output, TextDelta, ToolCallDelta

PING = Frame({"type": "ping"}, "ping")

_Place = tuple[str, int]
"""Which block a delta belongs to: a text channel, or ``tool_use`` and the call's index."""


class MessageEvents:
    """The events of one stream."""

    def __init__(self, head: dict[str, Any], new_call_id: Callable[[], str]) -> None:
        self._head = head
        self._new_call_id = new_call_id
        self._index = -1
        self._open: _Place | None = None
        self._signature = Signature()
        self._sent_arguments = False
        self._num_calls = 0

    def start(self, event: Admitted) -> Iterator[Frame]:
        usage = {**input_usage(event.prompt_tokens, event.cached_tokens), "output_tokens": 0}
        message = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield _frame("message_start", message=message)

    def output(self, event: Output) -> Iterator[Frame]:
        for delta in event.deltas:
            if not isinstance(delta, TextDelta) or delta.text:
                yield from self._delta(delta)

    def end(self, event: Finished) -> Iterator[Frame]:
        yield from self._close()
        yield _frame("message_delta", delta=stop_members(event, self._num_calls), usage=final_usage(event))
        yield _frame("message_stop")

    def _delta(self, delta: Delta) -> Iterator[Frame]:
        place: _Place = ("tool_use", delta.index) if isinstance(delta, ToolCallDelta) else (delta.channel, 0)
        if place != self._open:
            yield from self._close()
            yield self._start_block(delta)
            self._open = place
        if isinstance(delta, ToolCallDelta):
            if delta.arguments:
                self._sent_arguments = True
                yield self._block_delta("input_json_delta", partial_json=delta.arguments)
        elif delta.channel == "reasoning":
            self._signature.add(delta.text)
            yield self._block_delta("thinking_delta", thinking=delta.text)
        else:
            yield self._block_delta("text_delta", text=delta.text)

    def _start_block(self, delta: Delta) -> Frame:
        self._index += 1
        block: dict[str, Any]
        if isinstance(delta, ToolCallDelta):
            self._num_calls += 1
            self._sent_arguments = False
            block = {"type": "tool_use", "id": self._new_call_id(), "name": delta.name, "input": {}}
        elif delta.channel == "reasoning":
            self._signature = Signature()
            block = {"type": "thinking", "thinking": "", "signature": ""}
        else:
            block = {"type": "text", "text": ""}
        return _frame("content_block_start", index=self._index, content_block=block)

    def _close(self) -> Iterator[Frame]:
        if self._open is None:
            return
        kind, _ = self._open
        if kind == "reasoning":
            yield self._block_delta("signature_delta", signature=self._signature.text)
        elif kind == "tool_use" and not self._sent_arguments:
            yield self._block_delta("input_json_delta", partial_json="")
        yield _frame("content_block_stop", index=self._index)
        self._open = None

    def _block_delta(self, kind: str, **members: str) -> Frame:
        return _frame("content_block_delta", index=self._index, delta={"type": kind, **members})


def _frame(name: str, **members: Any) -> Frame:
    return Frame({"type": name, **members}, name)
