"""Chat Completions chunks from engine events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ninfer_jax.server.protocols.chat_objects import (
    final_timings,
    finish_reason,
    progress_object,
    timings_object,
    usage_object,
)
from ninfer_jax.types import Admitted, Delta, Finished, Output, PrefillProgress, TextDelta

_TEXT_MEMBER = {"reasoning": "reasoning_content", "content": "content"}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    include_usage: bool = False
    timings_per_token: bool = False
    return_progress: bool = False


class ChatChunks:
    """The chunks of one stream. The role chunk goes out with the first progress or output event, so
    that a client's time to first token is the model's."""

    def __init__(self, head: dict[str, Any], options: StreamOptions, new_call_id: Callable[[], str]) -> None:
        self._head = head
        self._options = options
        self._new_call_id = new_call_id
        self._opened = False
        self._admitted: Admitted | None = None
        self._processed = -1
        self._first_output_at: float | None = None
        self._num_calls = 0

    def start(self, event: Admitted) -> Iterator[dict[str, Any]]:
        self._admitted = event
        yield from self._progress(event.cached_tokens, event.at)

    def progress(self, event: PrefillProgress) -> Iterator[dict[str, Any]]:
        yield from self._progress(event.processed, event.at)

    def output(self, event: Output) -> Iterator[dict[str, Any]]:
        if event.token_ids or event.deltas:
            yield from self._end_prompt(event.at)
            yield from self._open()
        if self._first_output_at is None:
            self._first_output_at = event.at
        for delta in event.deltas:
            if isinstance(delta, TextDelta) and not delta.text:
                continue
            chunk = self._chunk(self._delta(delta))
            if self._options.timings_per_token and isinstance(delta, TextDelta):
                chunk["timings"] = self._snapshot(event)
            yield chunk

    def end(self, event: Finished) -> Iterator[dict[str, Any]]:
        admitted = self._admitted
        yield from self._end_prompt(admitted.at + event.timings.prompt if admitted else 0.0)
        yield from self._open()
        last = self._chunk({}, finish_reason(event.reason, self._num_calls))
        if self._options.include_usage:
            yield last
            last = {**self._head, "choices": [], "usage": usage_object(event.usage)}
        yield {**last, "timings": final_timings(event)}

    def _open(self) -> Iterator[dict[str, Any]]:
        if not self._opened:
            self._opened = True
            yield self._chunk({"role": "assistant", "content": ""})

    def _progress(self, processed: int, at: float) -> Iterator[dict[str, Any]]:
        """Never backwards, never twice; nothing unless asked for."""
        if self._admitted is None or not self._options.return_progress or processed <= self._processed:
            return
        self._processed = processed
        yield from self._open()
        progress = progress_object(self._admitted, processed, at)
        yield {**self._head, "choices": [], "prompt_progress": progress}

    def _end_prompt(self, at: float) -> Iterator[dict[str, Any]]:
        """The last progress event says that the prompt is done, even if the engine merged it away."""
        if self._admitted is not None:
            yield from self._progress(self._admitted.prompt_tokens, at)

    def _delta(self, delta: Delta) -> dict[str, Any]:
        if isinstance(delta, TextDelta):
            return {_TEXT_MEMBER[delta.channel]: delta.text}
        call: dict[str, Any] = {"index": delta.index, "function": {"arguments": delta.arguments}}
        if delta.name is not None:
            self._num_calls += 1
            function = {"name": delta.name, "arguments": delta.arguments}
            call = {"index": delta.index, "id": self._new_call_id(), "type": "function", "function": function}
        return {"tool_calls": [call]}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = {**self._head, "choices": [choice]}
        if self._options.include_usage:
            chunk["usage"] = None
        return chunk

    def _snapshot(self, event: Output) -> dict[str, Any]:
        assert self._admitted is not None
        assert self._first_output_at is not None
        return timings_object(
            cached=self._admitted.cached_tokens,
            prompt=self._admitted.prompt_tokens,
            prompt_seconds=self._first_output_at - self._admitted.at,
            predicted=event.completion_tokens,
            decode_seconds=event.at - self._first_output_at,
        )
