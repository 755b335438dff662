"""Server-Sent Events: frames as bytes, and the comment that keeps a silent stream alive."""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from ninfer_jax.json_values import JsonFloat

HEARTBEAT_SECONDS: Final = 5.0
HEARTBEAT: Final = b": keep-alive\n\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event. ``data`` is JSON-ready, or a str sent as it is (``[DONE]``)."""

    data: Any
    event: str | None = None


DONE: Final = Frame("[DONE]")


def encode(frame: Frame) -> bytes:
    data = frame.data.encode() if isinstance(frame.data, str) else to_json(frame.data)
    name = b"" if frame.event is None else b"event: " + frame.event.encode() + b"\n"
    return name + b"data: " + data + b"\n\n"


def to_json(value: Any) -> bytes:
    """Compact UTF-8 JSON for the wire; numbers that clients sent keep their spelling."""
    return orjson.dumps(value, default=_spelled)


def _spelled(value: Any) -> Any:
    if isinstance(value, JsonFloat):
        return orjson.Fragment(value.text)
    raise TypeError(f"{type(value).__name__} has no JSON form")
