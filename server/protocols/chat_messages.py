"""Chat messages to turns: every role, content form and legacy spelling of the endpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_jax.json_values import JsonError, parse_json
from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    kind_of,
    one_of,
    optional_array,
    optional_object,
    optional_string,
    required_object,
    required_string,
)
from ninfer_jax.server.protocols.chat_content import ContentRules, parse_content
from ninfer_jax.server.protocols.hints import Hints
from ninfer_jax.server.protocols.refusals import unsupported
from ninfer_jax.text.conversation import HistoryToolCall, Part, TextPart, Turn

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


@dataclass(slots=True)
class MessageParser:
    """Parses one request's messages."""

    has_vision: bool
    hints: Hints

    def parse(self, body: JsonObject) -> list[Turn]:
        messages = optional_array(body, "messages")
        if not messages:
            raise invalid("messages", "is required and must be a non-empty array")
        turns = [
            self._message(as_object(message, join("messages", index)), join("messages", index))
            for index, message in enumerate(messages)
        ]
        return in_call_order(turns)

    def _message(self, message: JsonObject, path: str) -> Turn:
        role = one_of(required_string(message, "role", path=path), ROLES, join(path, "role"))
        self._check_name(message, role, path)
        match role:
            case "assistant":
                return self._assistant(message, path)
            case "tool":
                call_id = required_string(message, "tool_call_id", path=path)
                return Turn("tool", self._content(message, "tool", path), tool_call_id=call_id)
            case "function":
                name = required_string(message, "name", path=path)
                parts = self._content(message, "tool", path, nullable=True)
                return Turn("tool", parts, tool_call_id=_legacy_id(name))
            case "system" | "developer" | "user":
                return Turn(role, self._content(message, role, path))
        raise AssertionError(role)

    def _content(
        self, message: JsonObject, role: str, path: str, *, nullable: bool = False
    ) -> tuple[Part, ...]:
        content = message.get("content")
        if content is None and nullable:
            return ()
        rules = ContentRules(role, self.has_vision)
        return parse_content(content, rules, join(path, "content"))

    def _assistant(self, message: JsonObject, path: str) -> Turn:
        parts = self._content(message, "assistant", path, nullable=True)
        refusal = optional_string(message, "refusal", path=path)
        if refusal:
            parts = (*parts, TextPart(refusal))
        if message.get("audio") is not None:
            raise unsupported(join(path, "audio"), "audio history cannot be replayed")
        reasoning = optional_string(message, "reasoning_content", path=path)
        alias = optional_string(message, "reasoning", path=path)
        calls = [
            parse_call(as_object(call, where), where)
            for index, call in enumerate(optional_array(message, "tool_calls", path=path) or ())
            for where in [join(join(path, "tool_calls"), index)]
        ]
        legacy = optional_object(message, "function_call", path=path)
        if legacy is not None:
            calls.append(_legacy_call(legacy, join(path, "function_call")))
        if len({call.id for call in calls}) != len(calls):
            raise invalid(join(path, "tool_calls"), "must not repeat an id")
        return Turn(
            "assistant", parts, reasoning=alias if reasoning is None else reasoning, tool_calls=tuple(calls)
        )

    def _check_name(self, message: JsonObject, role: str, path: str) -> None:
        """A tool result may repeat its function's name; elsewhere a name is a participant."""
        name = optional_string(message, "name", path=path)
        if not name or role in ("tool", "function"):
            return
        self.hints.refuse(join(path, "name"), "the chat template cannot tell participants of a role apart")


def _legacy_call(call: JsonObject, path: str) -> HistoryToolCall:
    name = required_string(call, "name", path=path)
    return HistoryToolCall(
        _legacy_id(name), name, parse_arguments(call.get("arguments"), join(path, "arguments"))
    )


def _legacy_id(name: str) -> str:
    """Legacy calls have no id: a result names its function."""
    return f"function:{name}"


def parse_call(call: JsonObject, path: str) -> HistoryToolCall:
    """One call of an assistant message. ``arguments`` is a JSON object, as text or (some clients) as is."""
    if call.get("type") not in (None, "function"):
        raise unsupported(join(path, "type"), "only function calls can be replayed")
    call_id = required_string(call, "id", path=path)
    function = required_object(call, "function", path=path)
    where = join(path, "function")
    name = required_string(function, "name", path=where)
    if not name:
        raise invalid(join(where, "name"), "must not be empty")
    return HistoryToolCall(
        call_id, name, parse_arguments(function.get("arguments"), join(where, "arguments"))
    )


def parse_arguments(arguments: Any, path: str) -> Mapping[str, Any]:
    """Templates iterate over arguments, so they must be an object; empty text is a call without any."""
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = parse_json(arguments)
        except JsonError as error:
            raise invalid(path, f"must hold JSON: {error}") from None
    elif arguments is None or isinstance(arguments, str):
        return {}
    if not isinstance(arguments, Mapping):
        raise invalid(path, f"must hold a JSON object, not {kind_of(arguments)}")
    return arguments


def in_call_order(turns: list[Turn]) -> list[Turn]:
    """Put the results that follow a turn's calls in the calls' order: a template drops the ids, so
    order is all that ties a result to its call. A run with an id that is not there stays as it is."""
    ordered: list[Turn] = []
    position: dict[str, int] = {}
    run: list[Turn] = []
    for turn in [*turns, None]:
        if turn is not None and turn.role == "tool":
            run.append(turn)
            continue
        ids = [result.tool_call_id or "" for result in run]
        if len(set(ids)) == len(ids) and all(call_id in position for call_id in ids):
            run.sort(key=lambda result: position[result.tool_call_id or ""])
        ordered += run
        run = []
        if turn is not None:
            position = {call.id: index for index, call in enumerate(turn.tool_calls)}
            ordered.append(turn)
    return ordered
