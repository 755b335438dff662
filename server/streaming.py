"""An event stream being written to one client."""

import asyncio
import time

from sanic import Request
from sanic.exceptions import RequestCancelled
from sanic.response import BaseHTTPResponse

WRITE_TIMEOUT_SECONDS = 120.0
"""A client that takes nothing for so long is given up; its reservation is worth more."""

HEADERS = {
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would hold small events back
}


class SseStream:
    """Writes with backpressure: ``write`` returns when the client's socket has room again."""

    def __init__(self, request: Request, response: BaseHTTPResponse) -> None:
        self._request = request
        self._response = response
        self.last_write = time.monotonic()

    @classmethod
    async def open(cls, request: Request) -> "SseStream":
        """Send status and headers; from here on errors are events."""
        response = await request.respond(content_type="text/event-stream; charset=utf-8", headers=HEADERS)
        stream = cls(request, response)
        await stream._send(b"")
        return stream

    async def write(self, data: bytes) -> None:
        if data:
            await self._send(data)
            self.last_write = time.monotonic()

    async def end(self, data: bytes) -> None:
        """Send the last bytes and finish the response."""
        await self._send(data, last=True)

    async def _send(self, data: bytes, *, last: bool = False) -> None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                await self._response.send(data, end_stream=last)
        except TimeoutError:
            transport = self._request.transport
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
            raise RequestCancelled("the client stopped reading") from None
