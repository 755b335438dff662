"""Every error of the framework and of our handlers as JSON, in the form of the path's clients."""

import logging

from sanic import HTTPResponse, Request
from sanic.exceptions import (
    BadRequest,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    RequestCancelled,
    RequestTimeout,
    SanicException,
)
from sanic.handlers import ErrorHandler

from ninfer_jax.errors import (
    InvalidRequestError,
    MethodNotAllowedError,
    NinferError,
    RequestTooLargeError,
    RouteNotFoundError,
)
from ninfer_jax.server.errors import family_of
from ninfer_jax.server.http import json_response
from ninfer_jax.server.request_ids import request_id_of

logger = logging.getLogger(__name__)


class JsonErrorHandler(ErrorHandler):
    def default(self, request: Request, exception: Exception) -> HTTPResponse:
        error = _ours(request, exception)
        request_id = request_id_of(request)
        if not isinstance(error, NinferError):
            logger.error("request %s failed", request_id, exc_info=error)
        answer = family_of(request.path).answer(error, request_id)
        headers = dict(answer.headers)
        if isinstance(exception, MethodNotAllowed) and "allow" in exception.headers:
            headers["allow"] = exception.headers["allow"]
        return json_response(answer.body, answer.status, headers)


def _ours(request: Request, exception: Exception | RequestCancelled) -> BaseException:
    match exception:
        case NotFound():
            return RouteNotFoundError(f"there is no {request.method} {request.path}")
        case MethodNotAllowed():
            return MethodNotAllowedError(f"{request.method} is not allowed on {request.path}")
        case PayloadTooLarge():
            return RequestTooLargeError("the request is too large")
        case RequestTimeout():
            return InvalidRequestError("the request did not arrive in time", code="request_timeout")
        case BadRequest():
            return InvalidRequestError("the request is not valid HTTP", code="bad_request")
        case RequestCancelled():
            return InvalidRequestError("the client left", code="client_closed_request")
        case SanicException() if exception.status_code < 500:
            return InvalidRequestError("the request could not be handled", code="bad_request")
        case _:
            return exception
