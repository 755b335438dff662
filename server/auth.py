"""The API key: a bearer token or an ``x-api-key`` header, compared in constant time."""

import hmac

from sanic import Request

from ninfer_jax.errors import AuthenticationError

OPEN_PATHS = frozenset({"/health"})


def check_key(request: Request, key: str | None) -> None:
    """Raises AuthenticationError unless the request may pass. Preflights never carry credentials."""
    if key is None or request.method == "OPTIONS" or request.path in OPEN_PATHS:
        return
    given = [request.headers.get("x-api-key", "")]
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        given.append(token.strip())
    expected = key.encode()
    if not any(hmac.compare_digest(value.encode(errors="replace"), expected) for value in given):
        raise AuthenticationError("the API key is missing or wrong; send it as a bearer token or x-api-key")
