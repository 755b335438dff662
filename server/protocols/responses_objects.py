"""The Response object: its members at every state of its life. Pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any

from ninfer_jax.errors import CapacityError, EngineError, QueueTimeoutError
from ninfer_jax.server.errors import public
from ninfer_jax.server.protocols.responses_items import Item
from ninfer_jax.types import Finished, FinishReason, Usage

_CUT = (FinishReason.OUTPUT_LIMIT, FinishReason.CONTEXT_LIMIT)

TERMINAL_EVENTS = {"completed": "response.completed", "incomplete": "response.incomplete"}


def is_cut(reason: FinishReason) -> bool:
    """Whether the output stopped before its end."""
    return reason in _CUT or reason is FinishReason.CANCELLED


def response_object(
    head: Mapping[str, Any], status: str = "in_progress", output: Sequence[Item] = (), **members: Any
) -> dict[str, Any]:
    """``head`` is what stays the same from creation to the end."""
    state = {
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "usage": None,
    }
    return {**head, "status": status, "output": list(output), **state, **members}


def finished_object(head: Mapping[str, Any], finished: Finished, output: Sequence[Item]) -> dict[str, Any]:
    """The terminal object of a request that ran to an end, its own or a limit's."""
    members: dict[str, Any] = {"usage": usage_object(finished.usage)}
    status = "completed"
    if finished.reason in _CUT:
        status = "incomplete"
        members["incomplete_details"] = {"reason": "max_output_tokens"}
    elif finished.reason is FinishReason.CANCELLED:
        status = "cancelled"
    else:
        members["completed_at"] = head["created_at"] + round(finished.timings.total)
    return response_object(head, status, output, **members)


def failed_object(head: Mapping[str, Any], error: BaseException, output: Sequence[Item]) -> dict[str, Any]:
    return response_object(head, "failed", output, error=error_object(error))


def error_object(error: BaseException) -> dict[str, str]:
    """Clients know two codes for what is no fault of theirs; the message says more."""
    shown = public(error)
    code = shown.code
    if isinstance(shown, EngineError | QueueTimeoutError):
        code = "server_error"
    elif isinstance(shown, CapacityError):
        code = "rate_limit_exceeded"
    return {"code": code, "message": shown.message}


def usage_object(usage: Usage) -> dict[str, Any]:
    """``cache_write_tokens`` is a price in OpenAI's service; nothing is charged here."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
