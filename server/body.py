"""Reading a request's body: bounded before it is parsed, and parsed without surprises."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from sanic import Request
from sanic.exceptions import PayloadTooLarge

from ninfer_jax.errors import InvalidRequestError, QueueTimeoutError, RequestTooLargeError
from ninfer_jax.json_values import JsonError, parse_json


async def read_body(request: Request, max_bytes: int, deadline: float) -> bytearray:
    """The raw body. Raises RequestTooLargeError as soon as a declared or received size passes
    ``max_bytes``, QueueTimeoutError when it has not arrived by ``deadline`` (monotonic)."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidRequestError("compressed request bodies are not supported", field="Content-Encoding")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            async for piece in request.stream:  # type: ignore[union-attr]  # set while a request is handled
                body += piece
                if len(body) > max_bytes:
                    raise _too_large(max_bytes)
    except TimeoutError:
        raise QueueTimeoutError("the request body did not arrive in time") from None
    except PayloadTooLarge:
        raise _too_large(max_bytes) from None
    return body


def parse_body(raw: bytes | bytearray) -> Mapping[str, Any]:
    """The JSON object of a body. Raises InvalidRequestError."""
    try:
        body = parse_json(raw)
    except JsonError as error:
        raise InvalidRequestError(
            f"the request body is not valid JSON: {error}", code="invalid_json"
        ) from None
    if not isinstance(body, dict):
        raise InvalidRequestError("the request body must be a JSON object", code="invalid_json")
    return body


def _too_large(max_bytes: int) -> RequestTooLargeError:
    return RequestTooLargeError(f"the request body exceeds the limit of {max_bytes >> 20} MiB")
