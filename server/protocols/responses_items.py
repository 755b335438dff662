"""Input Items: each one's form is checked, and brought into the one spelling that is stored and listed.

Nothing is merged, reordered or dropped here; how Items become turns is ``responses_history``.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    kind_of,
    one_of,
    optional_array,
    optional_string,
    required_string,
)
from ninfer_jax.server.protocols.prompt_cache import parse_breakpoint
from ninfer_jax.server.protocols.refusals import unsupported, vision_disabled

Item = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
ID_PREFIX = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
}
_SEAL = "ninfer-reasoning-1:"


def seal_reasoning(text: str) -> str:
    """``encrypted_content`` of a reasoning Item: opaque to clients, and enough to restore the text."""
    return base64.b64encode((_SEAL + text).encode()).decode()


def unseal_reasoning(sealed: str) -> str | None:
    """The text behind our own ``encrypted_content``; None for anybody else's."""
    try:
        text = base64.b64decode(sealed, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return text.removeprefix(_SEAL) if text.startswith(_SEAL) else None


@dataclass(slots=True)
class ItemNormaliser:
    """Normalises one request's input. ``known_ids`` are those of the history it continues,
    ``find_stored`` gives an Item that a stored Response produced."""

    new_id: Callable[[str], str]
    find_stored: Callable[[str], Item | None]
    has_vision: bool
    known_ids: set[str] = field(default_factory=set)

    def normalise(self, given: Any) -> list[Item]:
        """A string is one user message, an empty one nothing. Raises RequestError naming the member."""
        if given is None or given == "":
            return []
        if isinstance(given, str):
            return [self._message({"role": "user", "content": given}, "input")]
        if not isinstance(given, list):
            raise invalid("input", f"must be a string or an array of Items, not {kind_of(given)}")
        return [
            self._item(as_object(item, join("input", i)), join("input", i)) for i, item in enumerate(given)
        ]

    def _item(self, item: JsonObject, path: str) -> Item:
        kind = optional_string(item, "type", path=path)
        match kind:
            case "message":
                return self._message(item, path)
            case None if "role" in item:
                return self._message(item, path)
            case "reasoning":
                return self._reasoning(item, path)
            case "function_call":
                return self._call(item, path)
            case "function_call_output":
                return self._output(item, path)
            case "item_reference":
                return self._referenced(item, path)
            case None if set(item) == {"id"}:
                return self._referenced(item, path)
            case None:
                raise invalid(join(path, "type"), "is required and must be a string")
        where = join(path, "type")
        raise unsupported(where, f"{kind[:64]!r} is no message, reasoning, function call or output of one")

    def _referenced(self, item: JsonObject, path: str) -> Item:
        """The Item itself, under its own id."""
        item_id = _filled(item, "id", path)
        found = self.find_stored(item_id)
        if found is None:
            raise invalid(
                join(path, "id"), f"{item_id[:100]!r} is no Item of a stored response", code="item_not_found"
            )
        self._id(found, found["type"], path)
        return found

    def _message(self, item: JsonObject, path: str) -> Item:
        role = one_of(required_string(item, "role", path=path), ROLES, join(path, "role"))
        content, where = item.get("content"), join(path, "content")
        if isinstance(content, str):
            content = [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
        elif not isinstance(content, list):
            raise invalid(where, f"must be a string or an array of parts, not {kind_of(content)}")
        for index, part in enumerate(content):
            self._check_part(as_object(part, join(where, index)), role, join(where, index))
        normal = {
            "id": self._id(item, "message", path),
            "type": "message",
            "status": optional_string(item, "status", path=path) or "completed",
            "role": role,
            "content": content,
        }
        phase = optional_string(item, "phase", path=path)
        return normal if phase is None else {**normal, "phase": phase}

    def _check_part(self, part: JsonObject, role: str, path: str) -> None:
        kind = required_string(part, "type", path=path)
        parse_breakpoint(part, path)
        match kind:
            case "input_text":
                required_string(part, "text", path=path)
            case "output_text" if role == "assistant":
                required_string(part, "text", path=path)
            case "refusal" if role == "assistant":
                required_string(part, "refusal", path=path)
            case "input_image" | "input_video" if role in ("user", "assistant", "tool"):
                self._check_media(part, kind, path)
            case "input_image" | "input_video" | "input_file" | "input_audio":
                raise unsupported(
                    join(path, "type"), f"a {role} message cannot hold {kind} parts on this server"
                )
            case _:
                raise invalid(join(path, "type"), f"{kind[:64]!r} is not a content type of a {role} message")

    def _check_media(self, part: JsonObject, kind: str, path: str) -> None:
        if not self.has_vision:
            raise vision_disabled(path)
        if part.get("file_id") is not None:
            raise unsupported(join(path, "file_id"), "there are no uploaded files; send a URL")
        if optional_string(part, "detail", path=path) not in (None, "auto"):
            raise unsupported(join(path, "detail"), "images are always read in one resolution; use auto")
        required_string(part, kind.removeprefix("input_") + "_url", path=path)

    def _reasoning(self, item: JsonObject, path: str) -> Item:
        where = join(path, "content")
        parts = optional_array(item, "content", path=path) or []
        for index, part in enumerate(parts):
            at = join(where, index)
            kind = required_string(as_object(part, at), "type", path=at)
            if kind != "reasoning_text":
                raise invalid(join(at, "type"), f"{kind[:64]!r} is not a content type of reasoning")
            required_string(part, "text", path=at)
        sealed = optional_string(item, "encrypted_content", path=path)
        summary = optional_array(item, "summary", path=path) or []
        if not parts:
            parts = self._restored(item, sealed)
        if not parts:
            raise unsupported(
                where, "reasoning is replayed with its reasoning_text; a summary cannot replace it"
            )
        normal = {
            "id": self._id(item, "reasoning", path),
            "type": "reasoning",
            "summary": list(summary),
            "content": list(parts),
        }
        return normal if sealed is None else {**normal, "encrypted_content": sealed}

    def _restored(self, item: JsonObject, sealed: str | None) -> list[Any]:
        """The content of reasoning that comes back without it: from our own seal, else from the store."""
        text = None if sealed is None else unseal_reasoning(sealed)
        if text is not None:
            return [{"type": "reasoning_text", "text": text}]
        item_id = item.get("id")
        stored = self.find_stored(item_id) if isinstance(item_id, str) else None
        return stored["content"] if stored is not None and stored["type"] == "reasoning" else []

    def _call(self, item: JsonObject, path: str) -> Item:
        _check_complete(item, path)
        namespace = optional_string(item, "namespace", path=path)
        return {
            "id": self._id(item, "function_call", path),
            "type": "function_call",
            "status": "completed",
            "call_id": _filled(item, "call_id", path),
            **({} if namespace is None else {"namespace": namespace}),
            "name": _filled(item, "name", path),
            "arguments": required_string(item, "arguments", path=path),
        }

    def _output(self, item: JsonObject, path: str) -> Item:
        _check_complete(item, path)
        output, where = item.get("output"), join(path, "output")
        if isinstance(output, list):
            if not output:
                raise invalid(where, "must not be empty")
            for index, part in enumerate(output):
                at = join(where, index)
                kind = required_string(as_object(part, at), "type", path=at)
                if kind not in ("input_text", "input_image"):
                    raise unsupported(join(at, "type"), "a result holds input_text and input_image parts")
                self._check_part(part, "tool", at)
        elif not isinstance(output, str):
            raise invalid(where, f"must be a string or an array of parts, not {kind_of(output)}")
        asserted = {
            name: value
            for name in ("namespace", "name")
            if (value := optional_string(item, name, path=path)) is not None
        }
        return {
            "id": self._id(item, "function_call_output", path),
            "type": "function_call_output",
            "status": "completed",
            "call_id": _filled(item, "call_id", path),
            **asserted,
            "output": output,
        }

    def _id(self, item: JsonObject, kind: str, path: str) -> str:
        given = optional_string(item, "id", path=path)
        if not given:
            return self.new_id(ID_PREFIX[kind])
        if given in self.known_ids:
            raise invalid(
                join(path, "id"), f"{given[:100]!r} is taken by another Item", code="duplicate_item_id"
            )
        self.known_ids.add(given)
        return given


def _check_complete(item: JsonObject, path: str) -> None:
    if optional_string(item, "status", path=path) not in (None, "completed"):
        raise unsupported(join(path, "status"), "only completed calls and results can be replayed")


def _filled(item: JsonObject, name: str, path: str) -> str:
    value = required_string(item, name, path=path)
    if not value:
        raise invalid(join(path, name), "must not be empty")
    return value
