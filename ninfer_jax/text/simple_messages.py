"""``[{"role": ..., "content": ...}]`` from a script or a file to a conversation: text chats only.

The HTTP protocols have their own, far richer readers; this one serves the Python API and the terminal.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from ninfer_jax.errors import InvalidRequestError
from ninfer_jax.text.conversation import Conversation, Role, TextPart, Turn

ROLES = tuple(role for role in get_args(Role) if role != "tool")


def conversation_of(
    messages: Sequence[Mapping[str, Any]], *, enable_thinking: bool | None = None
) -> Conversation:
    """Raises InvalidRequestError naming the member at fault (``messages[2].role``)."""
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise InvalidRequestError("messages must be a list of objects", field="messages")
    if not messages:
        raise InvalidRequestError("messages must not be empty", field="messages")
    if enable_thinking is not None and not isinstance(enable_thinking, bool):
        raise InvalidRequestError("enable_thinking must be true or false", field="enable_thinking")
    turns = tuple(_turn(message, f"messages[{index}]") for index, message in enumerate(messages))
    return Conversation(turns, enable_thinking=enable_thinking)


def _turn(message: Any, where: str) -> Turn:
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"{where} must be an object", field=where)
    for key in message:
        if key not in ("role", "content"):
            raise InvalidRequestError(f"{where} has an unknown member {key!r}", field=f"{where}.{key}")
    role = message.get("role")
    if role not in ROLES:
        raise InvalidRequestError(
            f"role must be one of {', '.join(ROLES)}, not {role!r}", field=f"{where}.role"
        )
    return Turn(cast(Role, role), _parts(message.get("content"), f"{where}.content"))


def _parts(content: Any, where: str) -> tuple[TextPart, ...]:
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, Sequence) or not content:
        raise InvalidRequestError(f"{where} must be a string or a list of text parts", field=where)
    parts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise InvalidRequestError(f"{where} holds a part without text", field=where)
        parts.append(TextPart(text))
    return tuple(parts)
