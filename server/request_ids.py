"""One id of ours for every request: in the headers of the answer, in error bodies, in the log."""

import re
import secrets

from sanic import Request

_PLAIN = re.compile(r"[!-~]{1,128}")


def client_request_id_of(request: Request) -> str | None:
    """The id the client sent along, if it is short plain text."""
    sent = request.headers.get("x-request-id", "")
    return sent if _PLAIN.fullmatch(sent) else None


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


def request_id_of(request: Request) -> str:
    """The id of this request; made when first asked for."""
    known = getattr(request.ctx, "request_id", None)
    if isinstance(known, str):
        return known
    made = new_request_id()
    request.ctx.request_id = made
    return made
