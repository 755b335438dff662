"""Message content: a string, or an ordered array of parts."""

from dataclasses import dataclass
from typing import Any, Literal

from ninfer_jax.errors import UnsupportedFeatureError
from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    kind_of,
    optional_string,
    required_string,
)
from ninfer_jax.server.protocols.prompt_cache import parse_breakpoint
from ninfer_jax.server.protocols.refusals import unsupported, vision_disabled
from ninfer_jax.text.conversation import MediaPart, Part, TextPart

_MEDIA_ROLES = {"image_url": ("user", "tool"), "video_url": ("user",)}


@dataclass(frozen=True, slots=True)
class ContentRules:
    role: str
    has_vision: bool


def parse_content(content: Any, rules: ContentRules, path: str) -> tuple[Part, ...]:
    """Parts in received order; nothing is joined, trimmed or separated. ``""`` and ``[]`` are empty."""
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    if not isinstance(content, list):
        raise invalid(path, f"must be a string or an array of parts, not {kind_of(content)}")
    return tuple(
        _part(as_object(part, join(path, index)), rules, join(path, index))
        for index, part in enumerate(content)
    )


def _part(part: JsonObject, rules: ContentRules, path: str) -> Part:
    kind = required_string(part, "type", path=path)
    marked = parse_breakpoint(part, path)
    match kind:
        case "text":
            return TextPart(required_string(part, "text", path=path), breakpoint=marked)
        case "refusal" if rules.role == "assistant":
            return TextPart(required_string(part, "refusal", path=path), breakpoint=marked)
        case "image_url" | "video_url":
            return _media(part, kind, rules, path, marked)
        case "input_audio" | "audio_url" | "file":
            raise UnsupportedFeatureError(
                f"{path} is of type {kind}: this server reads no audio or file input",
                field=join(path, "type"),
            )
    raise invalid(join(path, "type"), f"{kind[:64]!r} is not a content type of a {rules.role} message")


def _media(part: JsonObject, kind: str, rules: ContentRules, path: str, marked: bool) -> MediaPart:
    if rules.role not in _MEDIA_ROLES[kind]:
        raise UnsupportedFeatureError(
            f"{path}: {kind} parts are not supported in {rules.role} messages", field=join(path, "type")
        )
    if not rules.has_vision:
        raise vision_disabled(path)
    medium: Literal["image", "video"] = "image" if kind == "image_url" else "video"
    source = part.get(kind)
    if isinstance(source, str):
        return MediaPart(medium, source, breakpoint=marked)
    where = join(path, kind)
    fields = as_object(source, where)
    detail = optional_string(fields, "detail", path=where)
    if detail not in (None, "auto"):
        raise unsupported(join(where, "detail"), "images are always read in one resolution; use auto")
    return MediaPart(medium, required_string(fields, "url", path=where), breakpoint=marked)
