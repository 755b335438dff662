"""The few things routes share about the HTTP framework."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias

from sanic import HTTPResponse, Sanic
from sanic.config import Config

from ninfer_jax.server.sse import to_json

App: TypeAlias = Sanic[Config, SimpleNamespace]


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> HTTPResponse:
    return HTTPResponse(to_json(value), status, headers=dict(headers or {}), content_type="application/json")
