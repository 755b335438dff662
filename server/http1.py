"""HTTP/1.1 where Sanic reads requests otherwise than RFC 9112 asks.

- The value of ``Transfer-Encoding`` has no case (section 7).
- A target that is no URL is a 400; Sanic's error path would read it again and end without an answer (3.2).
- A chunk's size is hexadecimal digits and nothing else: ``int()`` would also take ``0x2`` (7.1).
- A chunk's data end with CRLF; Sanic would drop any two bytes there (7.1).
- A trailer section may follow the last chunk; its fields are dropped and the connection ends (7.1.2). Sanic
  refuses it since 25.12.1; releases before that left it in the buffer, to be read as another request.
- Empty lines before a request line are skipped (2.2), and waiting for what follows is waiting for a request.
- A method is a token: Sanic would take ``\\nGET`` (3.1).
- A request of HTTP/1.1 without ``Host`` is a 400, so is any with two or with one that names no host (3.2).
- A client that has closed its sending side while it still owes a body is told so (9.5). Once the body is
  whole, the end of its side means that it left: no answer could tell a half-open client from a dead one.
"""

import re
from typing import Any

from sanic import Request
from sanic.exceptions import BadRequest, BadURL
from sanic.http import Http, Stage
from sanic.server import HttpProtocol

MAX_TRAILER_BYTES = 8192
_HOST = re.compile(r"(\[[\w.:~%!$&'()*+,;=-]+\]|[\w.~%!$&'()*+,;=-]*)(:[0-9]*)?", re.ASCII)
_TOKEN = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_DIGITS = {10: re.compile(r"[0-9]+"), 16: re.compile(r"[0-9A-Fa-f]+")}


class Http1Request(Request):
    def __init__(self, *arguments: Any, **members: Any) -> None:
        super().__init__(*arguments, **members)
        coding = self.headers.get("transfer-encoding")
        if coding is not None:
            self.headers["transfer-encoding"] = coding.strip().lower()


class Http1(Http):
    """One connection's requests."""

    __slots__ = ("is_whole",)
    protocol: "Http1Protocol"
    request_body: Any  # None, True or "chunked"

    def init_for_request(self) -> None:
        super().init_for_request()  # type: ignore[no-untyped-call]
        self.is_whole = False

    async def http1_request_header(self) -> None:
        await self._skip_empty_lines()
        await super().http1_request_header()  # type: ignore[no-untyped-call]
        _check_head(self.request)
        self.is_whole = not self.request_body
        if self.protocol.is_half_closed:
            self.keep_alive = False

    async def _skip_empty_lines(self) -> None:
        buffer: bytearray = self.recv_buffer
        while bytes(buffer[:2]) in (b"\r\n", b"\r", b""):
            if buffer.startswith(b"\r\n"):
                del buffer[:2]
            else:
                self.stage = Stage.REQUEST if buffer else Stage.IDLE
                await self._receive_more()
        self.stage = Stage.REQUEST

    def create_empty_request(self) -> None:
        try:
            super().create_empty_request()
        except BadURL:
            self.url = None
            super().create_empty_request()

    async def read(self) -> bytes | None:
        if self.request_body == "chunked" and self.request_bytes_left == 0:
            await self._check_end_of_chunk()
        try:
            data: bytes | None = await super().read()
        except BadRequest:
            if self.request_body is not None:
                raise
            await self._skip_trailers()  # Sanic has read the last chunk and wants an empty line
            data = None
        if data is None:
            self.is_whole = True
            if self.protocol.is_half_closed:
                self.protocol.close()
        return data

    async def _check_end_of_chunk(self) -> None:
        """Before the first chunk, the empty line that ends the header stands here."""
        while len(self.recv_buffer) < 2:
            await self._receive_more()
        if self.recv_buffer[:2] != b"\r\n":
            self.keep_alive = False
            raise BadRequest("a chunk is longer than its size")

    async def _skip_trailers(self) -> None:
        buffer: bytearray = self.recv_buffer
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            if len(buffer) > MAX_TRAILER_BYTES:
                raise BadRequest("the trailer section is too long")
            await self._receive_more()
        del buffer[: end + 4]

    @staticmethod
    def _safe_int(value: str, base: int = 10) -> int:
        digits = value.rstrip(" \t")
        if not _DIGITS[base].fullmatch(digits):
            raise ValueError(f"{digits!r} is no number")
        return int(digits, base)


def _check_head(request: Request) -> None:
    if not _TOKEN.fullmatch(request.method):
        raise BadRequest("the method is no token")
    hosts = request.headers.getall("host", [])
    is_missing = not hosts and request.version == "1.1"
    if is_missing or len(hosts) > 1 or not all(_HOST.fullmatch(host.strip(" \t")) for host in hosts):
        raise BadRequest("a request names one host")


class Http1Protocol(HttpProtocol):
    """One connection."""

    HTTP_CLASS = Http1
    __slots__ = ("is_half_closed",)

    def __init__(self, **members: Any) -> None:
        super().__init__(**members)
        self.is_half_closed = False

    def eof_received(self) -> bool:
        """True keeps our side open: what has arrived is not read yet, or is not all of a request."""
        self.is_half_closed = True
        http = self.http
        if http is None or http.stage is Stage.IDLE:
            is_owed = bool(self.recv_buffer.lstrip(b"\r\n"))
        else:
            is_owed = http.stage is Stage.REQUEST or not http.is_whole
            http.keep_alive = False
        if is_owed:
            self._data_received.set()
        return is_owed

    async def receive_more(self) -> None:
        if self.is_half_closed:
            raise BadRequest("the connection ended inside the request")
        await super().receive_more()  # type: ignore[no-untyped-call]
