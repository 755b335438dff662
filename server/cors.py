"""``--cors``: permissive headers for browser clients."""

import re
from collections.abc import MutableMapping

from sanic import HTTPResponse, Request

EXPOSED = "x-request-id, request-id, retry-after"
ALLOWED = "authorization, content-type, x-api-key, anthropic-version, anthropic-beta"
_HEADER_NAMES = re.compile(r"[A-Za-z0-9_\-, ]{1,2000}")


def is_preflight(request: Request) -> bool:
    return request.method == "OPTIONS" and "access-control-request-method" in request.headers


def preflight_answer(request: Request) -> HTTPResponse:
    """204 that allows what the browser asks for; a bare ``*`` would not cover ``authorization``."""
    asked = request.headers.get("access-control-request-headers", "")
    return HTTPResponse(
        status=204,
        headers={
            "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
            "access-control-allow-headers": asked if _HEADER_NAMES.fullmatch(asked) else ALLOWED,
            "access-control-max-age": "86400",
        },
    )


def add_headers(headers: MutableMapping[str, str]) -> None:
    headers["access-control-allow-origin"] = "*"
    headers["access-control-expose-headers"] = EXPOSED
