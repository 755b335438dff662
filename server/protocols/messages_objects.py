"""The JSON objects of Messages: usage, stop reason, content blocks. Pure functions."""

import base64
import hashlib
from typing import Any

import orjson

from ninfer_jax.types import Finished, FinishReason

_STOP_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.STOP_STRING: "stop_sequence",
    FinishReason.OUTPUT_LIMIT: "max_tokens",
    FinishReason.CONTEXT_LIMIT: "model_context_window_exceeded",
    FinishReason.CANCELLED: "end_turn",
}


def stop_members(finished: Finished, num_calls: int) -> dict[str, Any]:
    """``stop_reason`` and the custom stop that matched. A cut answer is never ``tool_use``: its last call
    may be missing."""
    reason = _STOP_REASONS[finished.reason]
    if num_calls and reason == "end_turn":
        reason = "tool_use"
    return {"stop_reason": reason, "stop_sequence": finished.summary.stop_string}


def input_usage(prompt_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """The prompt, split into what was computed and what was reused; what was newly kept is not known."""
    return {
        "input_tokens": prompt_tokens - cached_tokens,
        "cache_creation_input_tokens": None,
        "cache_read_input_tokens": cached_tokens,
    }


def final_usage(finished: Finished) -> dict[str, Any]:
    usage = finished.usage
    return {
        **input_usage(usage.prompt_tokens, usage.cached_tokens),
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


class Signature:
    """The opaque seal of a thinking block. Clients carry it back unread, and so do we: the visible text
    is all that a later prompt needs."""

    def __init__(self, text: str = "") -> None:
        self._digest = hashlib.sha256(text.encode())

    def add(self, text: str) -> None:
        self._digest.update(text.encode())

    @property
    def text(self) -> str:
        return base64.b64encode(self._digest.digest()).decode()


def text_block(channel: str, text: str) -> dict[str, Any]:
    if channel == "reasoning":
        return {"type": "thinking", "thinking": text, "signature": Signature(text).text}
    return {"type": "text", "text": text}


def call_block(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """``arguments`` is the JSON text of an object; it is sent as the model's parser wrote it."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": orjson.Fragment(arguments or "{}")}
