"""One table from our errors to HTTP, once per protocol family; bodies in each family's own form.

Errors that we did not raise on purpose become a plain 500: their text may hold prompts or paths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ninfer_jax import errors
from ninfer_jax.errors import NinferError

RETRY_AFTER_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """An error as HTTP: status, JSON body, extra headers."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]


class ErrorFamily(Protocol):
    """How one family of protocols spells errors."""

    def kind(self, error: NinferError) -> tuple[int, str]:
        """HTTP status and the family's error type."""
        ...

    def answer(self, error: BaseException, request_id: str) -> Answer: ...

    def body(self, error: BaseException, request_id: str) -> dict[str, Any]: ...


_Row = tuple[type[NinferError], int, str]


def public(error: BaseException) -> NinferError:
    """The error a client may see: ours as it is, anything else without its text."""
    return error if isinstance(error, NinferError) else errors.EngineError("internal server error")


class _Family:
    rows: ClassVar[tuple[_Row, ...]]
    retryable: ClassVar[frozenset[int]] = frozenset({429, 503, 529})

    def answer(self, error: BaseException, request_id: str) -> Answer:
        status, _ = self.kind(public(error))
        headers = {"retry-after": str(RETRY_AFTER_SECONDS)} if status in self.retryable else {}
        return Answer(status, self.body(error, request_id), headers)

    def kind(self, error: NinferError) -> tuple[int, str]:
        return next((status, kind) for cls, status, kind in self.rows if isinstance(error, cls))

    def body(self, error: BaseException, request_id: str) -> dict[str, Any]:
        raise NotImplementedError


class OpenAIErrors(_Family):
    """``{"error": {"message", "type", "param", "code"}}``. The first row that fits wins."""

    rows = (
        (errors.AuthenticationError, 401, "invalid_request_error"),
        (errors.ModelNotFoundError, 404, "invalid_request_error"),
        (errors.ResponseNotFoundError, 404, "invalid_request_error"),
        (errors.RouteNotFoundError, 404, "invalid_request_error"),
        (errors.MethodNotAllowedError, 405, "invalid_request_error"),
        (errors.RequestTooLargeError, 413, "invalid_request_error"),
        (errors.RequestError, 400, "invalid_request_error"),
        (errors.ServerOverloadedError, 429, "rate_limit_error"),
        (errors.QueueTimeoutError, 503, "server_error"),
        (errors.EngineUnavailableError, 503, "server_error"),
        (NinferError, 500, "server_error"),
    )

    def body(self, error: BaseException, request_id: str) -> dict[str, Any]:
        shown = public(error)
        _, kind = self.kind(shown)
        return {"error": {"message": shown.message, "type": kind, "param": shown.field, "code": shown.code}}


class AnthropicErrors(_Family):
    """``{"type": "error", "error": {"type", "message"}, "request_id"}``; ``code`` is our addition."""

    rows = (
        (errors.AuthenticationError, 401, "authentication_error"),
        (errors.ModelNotFoundError, 404, "not_found_error"),
        (errors.RouteNotFoundError, 404, "not_found_error"),
        (errors.MethodNotAllowedError, 405, "invalid_request_error"),
        (errors.RequestTooLargeError, 413, "request_too_large"),
        (errors.RequestError, 400, "invalid_request_error"),
        (errors.ServerOverloadedError, 529, "overloaded_error"),
        (errors.QueueTimeoutError, 504, "timeout_error"),
        (errors.EngineUnavailableError, 503, "api_error"),
        (NinferError, 500, "api_error"),
    )

    def body(self, error: BaseException, request_id: str) -> dict[str, Any]:
        shown = public(error)
        _, kind = self.kind(shown)
        named = shown.field is None or shown.field in shown.message
        message = shown.message if named else f"{shown.field}: {shown.message}"
        return {
            "type": "error",
            "error": {"type": kind, "message": message, "code": shown.code},
            "request_id": request_id,
        }


OPENAI = OpenAIErrors()
ANTHROPIC = AnthropicErrors()


def family_of(path: str) -> ErrorFamily:
    """The family whose clients ask for this path."""
    return ANTHROPIC if path == "/v1/messages" or path.startswith("/v1/messages/") else OPENAI
