"""Tools for models whose chat template knows none: described in the system turn, in Qwen's XML form.

Calls in the history are written as the model would have written them, results as user turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ninfer_jax.json_values import dump_json
from ninfer_jax.text.conversation import Conversation, HistoryToolCall, Part, TextPart, Tool, Turn


def with_tools_as_text(conversation: Conversation) -> Conversation:
    """The same conversation without tools, calls or tool turns; all of them are text now."""
    turns: list[Turn] = []
    for turn in conversation.turns:
        if turn.role == "tool":
            _append_result(turns, turn)
        elif turn.tool_calls:
            parts = (*turn.parts, TextPart(_calls_text(turn)))
            turns.append(replace(turn, parts=parts, tool_calls=()))
        else:
            turns.append(turn)
    if conversation.tools:
        _describe(turns, conversation.tools)
    return replace(conversation, turns=tuple(turns), tools=())


def render_call(name: str, arguments: Mapping[str, Any]) -> str:
    """One call as the model writes it."""
    lines = ["<tool_call>", f"<function={name}>"]
    for key, value in arguments.items():
        lines += [f"<parameter={key}>", value if isinstance(value, str) else dump_json(value), "</parameter>"]
    return "\n".join([*lines, "</function>", "</tool_call>"])


def _calls_text(turn: Turn) -> str:
    calls = "\n".join(_render(call) for call in turn.tool_calls)
    has_text = any(isinstance(part, TextPart) and part.text.strip() for part in turn.parts)
    return ("\n\n" if has_text else "") + calls


def _render(call: HistoryToolCall) -> str:
    return render_call(call.name, call.arguments)


def _append_result(turns: list[Turn], result: Turn) -> None:
    note = "is_error: true\n" if result.is_error else ""
    parts: tuple[Part, ...] = (
        TextPart("<tool_response>\n" + note),
        *result.parts,
        TextPart("\n</tool_response>"),
    )
    before = turns[-1] if turns else None
    if before and before.role == "user" and before.tool_call_id is not None:
        turns[-1] = replace(before, parts=(*before.parts, TextPart("\n"), *parts))
    else:
        turns.append(Turn("user", parts, tool_call_id=result.tool_call_id or ""))


def _describe(turns: list[Turn], tools: Sequence[Tool]) -> None:
    schemas = "\n".join(dump_json(tool.definition) for tool in tools)
    example = render_call("name_of_the_function", {"name_of_a_parameter": "its value"})
    text = (
        f"You can call these functions:\n<tools>\n{schemas}\n</tools>\n\n"
        f"To call one, end your answer with exactly this form, one block a call:\n{example}"
    )
    if turns and turns[0].role in ("system", "developer"):
        turns[0] = replace(turns[0], parts=(TextPart(text + "\n\n"), *turns[0].parts))
    else:
        turns.insert(0, Turn("system", (TextPart(text),)))
