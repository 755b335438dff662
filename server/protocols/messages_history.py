"""Anthropic messages to turns: joined, ordered, and every tool call with its result.

The template knows a thought, then text, then calls within one assistant turn. Blocks that come in another
order open a further turn, so that nothing moves.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ninfer_jax.errors import InvalidRequestError
from ninfer_jax.server.fields import (
    JsonObject,
    as_object,
    invalid,
    join,
    one_of,
    optional_array,
    required_string,
)
from ninfer_jax.server.protocols.messages_content import Block, BlockParser, blocks_of, misplaced
from ninfer_jax.text.conversation import HistoryToolCall, Part, TextPart, Turn

ROLES = ("user", "assistant", "system")
BILLING_HEADER = "x-anthropic-billing-header:"


def parse_system(body: JsonObject, parser: BlockParser) -> list[Turn]:
    """The top-level instructions, as no turn or one."""
    system = body.get("system")
    if system is None:
        return []
    blocks = list(blocks_of(system, "system"))
    if isinstance(system, list) and blocks and _is_billing(blocks[0]):
        del blocks[
            0
        ]  # attribution metadata of a client; it differs between requests that are otherwise equal
    parts = tuple(_system_part(block, parser) for block in blocks)
    return [Turn("system", parts)] if any(part.text for part in parts) else []


def _is_billing(block: Block) -> bool:
    text = block.fields.get("text")
    return block.kind == "text" and isinstance(text, str) and text.startswith(BILLING_HEADER)


def _system_part(block: Block, parser: BlockParser) -> TextPart:
    if block.kind != "text":
        raise misplaced(block, "system message")
    return parser.text(block)


@dataclass(slots=True)
class _Message:
    """Consecutive messages of one role, as one."""

    role: str
    path: str
    blocks: list[Block]


def parse_messages(body: JsonObject, parser: BlockParser) -> tuple[list[Turn], bool]:
    """The turns, and whether the last one is text that the answer continues."""
    messages = _joined(body)
    history = _History(parser)
    for message in messages:
        match message.role:
            case "system":
                parts = tuple(_system_part(block, parser) for block in message.blocks)
                history.turns.append(Turn("system", parts))
            case "assistant":
                history.add_assistant(message)
            case _:
                history.add_user(message)
    last = messages[-1]
    if last.role == "assistant":
        _check_prefill(last)
        return history.turns, True
    history.check_answered(last.path)
    return history.turns, False


def _joined(body: JsonObject) -> list[_Message]:
    listed = optional_array(body, "messages")
    if not listed:
        raise invalid("messages", "is required and must be a non-empty array")
    joined: list[_Message] = []
    for index, item in enumerate(listed):
        path = join("messages", index)
        fields = as_object(item, path)
        role = one_of(required_string(fields, "role", path=path), ROLES, join(path, "role"))
        blocks = list(blocks_of(fields.get("content"), join(path, "content")))
        if joined and joined[-1].role == role != "system":
            joined[-1].blocks += blocks
        else:
            joined.append(_Message(role, path, blocks))
    return joined


def _check_prefill(message: _Message) -> None:
    for block in message.blocks:
        if block.kind != "text":
            raise invalid(
                block.path,
                f"is a {block.kind}: an assistant message that ends the request is a prefill of text",
            )


@dataclass(slots=True)
class _History:
    """Turns so far, and the calls that the next user message has to answer."""

    parser: BlockParser
    turns: list[Turn] = field(default_factory=list)
    _open_calls: list[str] = field(default_factory=list)
    _seen_assistant: bool = False

    def add_assistant(self, message: _Message) -> None:
        self.check_answered(message.path)
        turns = _AssistantTurns(self.parser)
        for block in message.blocks:
            turns.add(block)
        self.turns += turns.finish()
        self._seen_assistant = True
        self._open_calls = turns.call_ids
        if len(set(self._open_calls)) != len(self._open_calls):
            raise _bad_history(message.path, "must not repeat the id of a tool_use")

    def add_user(self, message: _Message) -> None:
        results: list[Turn] = []
        parts: list[Part] = []
        for block in message.blocks:
            if block.kind != "tool_result":
                parts.append(self.parser.part(block, "user message"))
            elif parts:
                raise _bad_history(block.path, "is a tool_result after other blocks; results come first")
            else:
                results.append(self.parser.result(block))
        self.turns += self._in_call_order(results, message.path)
        self._open_calls = []
        if parts or not results:
            self.turns.append(Turn("user", tuple(parts)))

    def check_answered(self, path: str) -> None:
        if self._open_calls:
            raise _unanswered(path, self._open_calls)

    def _in_call_order(self, results: Sequence[Turn], path: str) -> Iterable[Turn]:
        """Templates drop the ids, so order is all that ties a result to its call."""
        by_id = {result.tool_call_id or "": result for result in results}
        if len(by_id) != len(results):
            raise _bad_history(path, "must not hold two tool_result blocks for one tool_use_id")
        if not self._seen_assistant:  # cut from a longer conversation, or brought from elsewhere
            return results
        called = frozenset(self._open_calls)
        unknown = [call_id for call_id in by_id if call_id not in called]
        if unknown:
            raise _bad_history(
                path,
                f"has a tool_result for {_names(unknown)}, and the message before has no such tool_use",
            )
        missing = [call_id for call_id in self._open_calls if call_id not in by_id]
        if missing:
            raise _unanswered(path, missing)
        return [by_id[call_id] for call_id in self._open_calls]


@dataclass(slots=True)
class _AssistantTurns:
    """Cuts the blocks of an assistant message into turns that the template can show in their order."""

    parser: BlockParser
    call_ids: list[str] = field(default_factory=list)
    _turns: list[Turn] = field(default_factory=list)
    _thought: str | None = None
    _parts: list[TextPart] = field(default_factory=list)
    _calls: list[HistoryToolCall] = field(default_factory=list)

    def add(self, block: Block) -> None:
        match block.kind:
            case "thinking":
                self._before("thought")
                self._thought = (self._thought or "") + self.parser.thinking(block)
            case "text":
                self._before("text")
                self._parts.append(self.parser.text(block))
            case "tool_use":
                call = self.parser.call(block)
                self._calls.append(call)
                self.call_ids.append(call.id)
            case _:
                raise misplaced(block, "assistant message")

    def finish(self) -> list[Turn]:
        if self._thought is not None or self._parts or self._calls or not self._turns:
            self._close()
        return self._turns

    def _before(self, what: Literal["thought", "text"]) -> None:
        if self._calls or (what == "thought" and self._parts):
            self._close()

    def _close(self) -> None:
        turn = Turn("assistant", tuple(self._parts), reasoning=self._thought, tool_calls=tuple(self._calls))
        self._turns.append(turn)
        self._thought, self._parts, self._calls = None, [], []


def _unanswered(path: str, ids: Sequence[str]) -> InvalidRequestError:
    return _bad_history(
        path,
        f"must begin with the tool_result of every tool_use before it; there is none for {_names(ids)}",
    )


def _names(ids: Sequence[str]) -> str:
    return ", ".join(call_id[:64] for call_id in ids[:8])


def _bad_history(path: str, problem: str) -> InvalidRequestError:
    return invalid(path, problem, code="invalid_tool_history")
