"""``POST /profile``: a profiler trace of the next seconds, for who holds the key. Off by default."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from sanic import HTTPResponse, Request

from ninfer_jax.errors import ServerOverloadedError
from ninfer_jax.server.body import parse_body, read_body
from ninfer_jax.server.fields import optional_number
from ninfer_jax.server.http import App, json_response

Capture = Callable[[float], Path]
"""Traces the process for so many seconds; returns the folder it wrote."""

MIN_SECONDS, DEFAULT_SECONDS, MAX_SECONDS = 0.1, 3.0, 60.0
MAX_BODY_BYTES = 4096
BODY_SECONDS = 10.0


def add_routes(app: App, capture: Capture) -> None:
    running = asyncio.Lock()

    async def profile(request: Request) -> HTTPResponse:
        raw = await read_body(request, MAX_BODY_BYTES, time.monotonic() + BODY_SECONDS)
        seconds = optional_number(parse_body(raw), "seconds", MIN_SECONDS, MAX_SECONDS)
        if running.locked():
            raise ServerOverloadedError("a trace is being captured already; try again")
        async with running:
            folder = await asyncio.to_thread(capture, seconds or DEFAULT_SECONDS)
        return json_response({"folder": str(folder)})

    app.add_route(profile, "/profile", methods=["POST"], stream=True)
