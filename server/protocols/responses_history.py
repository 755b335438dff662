"""Items to turns: contiguous Items of the assistant are one turn, results follow the order of their calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ninfer_jax.errors import InvalidRequestError
from ninfer_jax.server.fields import JsonObject, invalid, join
from ninfer_jax.server.protocols.chat_messages import parse_arguments
from ninfer_jax.server.protocols.prompt_cache import parse_breakpoint
from ninfer_jax.server.protocols.responses_tools import FunctionName
from ninfer_jax.text.conversation import HistoryToolCall, MediaPart, Part, TextPart, Turn


@dataclass(slots=True)
class _AssistantTurn:
    """An assistant turn being collected, in the order that a template can show."""

    reasoning: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    has_message: bool = False
    calls: dict[str, HistoryToolCall] = field(default_factory=dict)
    names: dict[str, FunctionName] = field(default_factory=dict)

    def turn(self) -> Turn:
        reasoning = "".join(self.reasoning) if self.reasoning else None
        return Turn(
            "assistant", tuple(self.parts), reasoning=reasoning, tool_calls=tuple(self.calls.values())
        )


class HistoryBuilder:
    """Takes normalised Items one by one. Errors name the Item by the path that came with it.

    ``text_after_calls`` is for ``--tolerant-tool-calls``, where the model may go on after a call: that
    text joins the turn's content.
    """

    def __init__(self, *, text_after_calls: bool = False) -> None:
        self.turns: list[Turn] = []
        self._text_after_calls = text_after_calls
        self._open: _AssistantTurn | None = None
        self._unanswered: dict[str, FunctionName] = {}
        self._results: dict[str, Turn] = {}

    def add(self, item: Mapping[str, Any], path: str) -> None:
        match item["type"], item.get("role"):
            case "function_call_output", _:
                self._add_result(item, path)
            case "message", "user" | "system" | "developer":
                self.end_group()
                self._check_answered(path)
                self.turns.append(Turn(item["role"], _parts(item["content"], join(path, "content"))))
            case "reasoning", _:
                self._add_reasoning(item, path)
            case "message", _:
                self._add_message(item, path)
            case _:
                self._add_call(item, path)

    def end_group(self) -> None:
        """What follows is another turn, whoever it belongs to."""
        if self._open is not None:
            self._unanswered = self._open.names
            self.turns.append(self._open.turn())
            self._open = None

    def finish(self) -> list[Turn]:
        self.end_group()
        self._check_answered("input")
        return self.turns

    def _group(self, path: str) -> _AssistantTurn:
        if self._open is None:
            self._check_answered(path)
            self._open = _AssistantTurn()
        return self._open

    def _add_reasoning(self, item: JsonObject, path: str) -> None:
        group = self._group(path)
        if group.has_message or group.calls:
            raise _misplaced(path, "reasoning must come before the message and the calls of its turn")
        group.reasoning += [part["text"] for part in item["content"]]

    def _add_message(self, item: JsonObject, path: str) -> None:
        group = self._group(path)
        if group.calls and not self._text_after_calls:
            raise _misplaced(path, "a message must come before the calls of its turn")
        group.has_message = True
        group.parts += _parts(item["content"], join(path, "content"))

    def _add_call(self, item: JsonObject, path: str) -> None:
        group = self._group(path)
        call_id = item["call_id"]
        if call_id in group.calls:
            raise _bad_tools(join(path, "call_id"), f"{call_id[:100]!r} is the id of an earlier call")
        where = join(path, "arguments")
        if not item["arguments"].strip():
            raise invalid(where, "must hold a JSON object, not nothing")
        function = FunctionName(item["name"], item.get("namespace"))
        arguments = parse_arguments(item["arguments"], where)
        group.calls[call_id] = HistoryToolCall(call_id, function.internal, arguments)
        group.names[call_id] = function

    def _add_result(self, item: JsonObject, path: str) -> None:
        self.end_group()
        call_id = item["call_id"]
        called = self._unanswered.get(call_id)
        if called is None or call_id in self._results:
            problem = (
                "has its result already" if call_id in self._results else "is no call of the turn before"
            )
            raise _bad_tools(join(path, "call_id"), f"{call_id[:100]!r} {problem}")
        _check_name(item, called, path)
        output = item["output"]
        parts = (TextPart(output),) if isinstance(output, str) else _parts(output, join(path, "output"))
        self._results[call_id] = Turn("tool", parts, tool_call_id=call_id)
        if len(self._results) == len(self._unanswered):
            self.turns += [self._results[known] for known in self._unanswered]
            self._unanswered, self._results = {}, {}

    def _check_answered(self, path: str) -> None:
        missing = [call_id for call_id in self._unanswered if call_id not in self._results]
        if missing:
            raise _bad_tools(path, f"comes without the result of call {missing[0][:100]!r}")


def _check_name(item: JsonObject, called: FunctionName, path: str) -> None:
    """A result may say whose it is; then it must be right."""
    for member, actual in (("name", called.name), ("namespace", called.namespace)):
        if member in item and item[member] != actual:
            where = join(path, member)
            raise _bad_tools(where, f"{item[member][:100]!r} is not what was called")


def _parts(content: Sequence[Any], path: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    for index, part in enumerate(content):
        marked = parse_breakpoint(part, join(path, index))
        match part["type"]:
            case "refusal":
                parts.append(TextPart(part["refusal"], breakpoint=marked))
            case "input_image":
                parts.append(MediaPart("image", part["image_url"], breakpoint=marked))
            case "input_video":
                parts.append(MediaPart("video", part["video_url"], breakpoint=marked))
            case _:
                parts.append(TextPart(part["text"], breakpoint=marked))
    return tuple(parts)


def _misplaced(path: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {problem}", field=path, code="invalid_assistant_history")


def _bad_tools(path: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path} {problem}", field=path, code="invalid_tool_history")
