"""Reading a request's body: bounded before it is parsed, and parsed without surprises."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, cast

from sanic import Request
from sanic.exceptions import PayloadTooLarge
from sanic.http import Http

from ninfer_jax.errors import InvalidRequestError, QueueTimeoutError, RequestTooLargeError
from ninfer_jax.json_values import JsonError, parse_json


async def read_body(request: Request, max_bytes: int, deadline: float) -> bytearray:
    """The raw body. Raises RequestTooLargeError as soon as the declared size of the body, or of its chunks so
    far, passes ``max_bytes``, QueueTimeoutError when it has not arrived by ``deadline`` (monotonic)."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidRequestError("compressed request bodies are not supported", field="Content-Encoding")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    stream = cast(Http, request.stream)
    discarded = stream.request_max_size  # how far what is refused will be read and dropped
    stream.request_max_size = max_bytes  # a chunk that would pass it is refused when its size is read
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            async for piece in stream:
                body += piece
    except TimeoutError:
        raise QueueTimeoutError("the request body did not arrive in time") from None
    except PayloadTooLarge:
        raise _too_large(max_bytes) from None
    finally:
        stream.request_max_size = discarded
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
