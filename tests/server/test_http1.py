"""Requests as bytes on a socket: what RFC 9112 allows is served, what it forbids is a 400."""

import contextlib
import json
import socket

import pytest

from tests.server.fake_engine import FakeEngine, idle_within
from tests.server.test_chat_basics import CHAT, chat, user

RAW = json.dumps({"messages": user(), "max_tokens": 1}).encode()
CHUNKED = b"transfer-encoding: chunked"


def head(*fields, length=None, path=CHAT, host=(b"host: x",), version=b"1.1"):
    sized = [b"content-length: %d" % length] if length is not None else []
    return b"\r\n".join([b"POST %s HTTP/%s" % (path.encode(), version), *host, *sized, *fields, b"", b""])


def chunks(*pieces, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + end


def exchange(server, *pieces, half_close=False):
    """Every byte that comes back for these, up to the end of the first answer or of the connection. A server
    that refuses the head may have closed before the rest is sent; its answer must be here all the same."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        with contextlib.suppress(OSError):
            for piece in pieces:
                connection.sendall(piece)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                received += piece
                if not half_close and is_whole(received):
                    break
        return received


def is_whole(received):
    fields, gap, rest = received.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in fields.lower().splitlines() if line.startswith(b"content-length:")]
    return bool(gap and lengths and len(rest) >= lengths[0])


def status(received):
    return int(received.split(b" ", 2)[1])


def error(received):
    return json.loads(received.partition(b"\r\n\r\n")[2])["error"]


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"CHUNKED", b"chunked  "])
def test_the_transfer_coding_has_no_case(start, coding):
    answer = exchange(start(), head(b"Transfer-Encoding: " + coding), chunks(RAW[:9], RAW[9:]))
    assert status(answer) == 200


@pytest.mark.parametrize("coding", [b"gzip", b"gzip, chunked", b"identity", b""])
def test_another_transfer_coding_is_400(start, coding):
    server = start()
    assert status(exchange(server, head(b"transfer-encoding: " + coding), chunks(RAW))) == 400
    assert chat(server, max_tokens=1)


@pytest.mark.parametrize(
    "trailers", [b"x-checksum: 1\r\n", b"a: 1\r\nb: 2\r\n", b"GET /health HTTP/1.1\r\nhost: x\r\n"]
)
def test_trailers_are_dropped_and_never_a_request(start, trailers):
    server = start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head(CHUNKED) + chunks(RAW, end=b"0\r\n" + trailers + b"\r\n"))
        received = b""
        while piece := connection.recv(65536):
            received += piece
    assert received.count(b"HTTP/1.1 ") == 1, "one answer, then the connection ends"
    assert status(received) == 200


def test_trailers_byte_by_byte(start):
    body = chunks(RAW, end=b"0\r\nx: 1\r\ny: 2\r\n\r\n")
    pieces = [body[at : at + 1] for at in range(len(body))]
    assert status(exchange(start(), head(CHUNKED), *pieces)) == 200


def test_endless_trailers_are_400(start):
    server = start()
    assert status(exchange(server, head(CHUNKED), chunks(RAW, end=b"0\r\n"), b"x: " + b"y" * 20_000)) == 400
    assert chat(server, max_tokens=1)


@pytest.mark.parametrize(
    "size", [b"0x2", b"0X2", b"+2", b"-2", b"2_0", b" 2", b"", b"g", b"\xd9\xa2", b"2 2"]
)
@pytest.mark.parametrize("half_close", [False, True])
def test_a_bad_chunk_size_is_400(start, size, half_close):
    server = start()
    answer = exchange(server, head(CHUNKED), size + b"\r\n{}\r\n0\r\n\r\n", half_close=half_close)
    assert status(answer) == 400
    assert error(answer)["code"] == "bad_request"
    assert chat(server, max_tokens=1)


@pytest.mark.parametrize("size", [b"%X", b"%x;name=value", b"%x ;a", b"00%x"])
def test_a_good_chunk_size_in_other_spellings(start, size):
    body = size % len(RAW) + b"\r\n" + RAW + b"\r\n0\r\n\r\n"
    assert status(exchange(start(), head(CHUNKED), body)) == 200


@pytest.mark.parametrize("length", [b"0x10", b"1_0", b"+10", b"ten", b"", b"-1"])
@pytest.mark.parametrize("half_close", [False, True])
def test_a_bad_content_length_is_400(start, length, half_close):
    answer = exchange(start(), head(b"content-length: " + length), RAW, half_close=half_close)
    assert status(answer) == 400


@pytest.mark.parametrize(
    "sent",
    [
        head(length=len(RAW)) + RAW[:10],
        head(length=len(RAW)),
        head(CHUNKED) + chunks(RAW[:10], end=b""),
        head(CHUNKED) + chunks(RAW, end=b"0\r\n"),
        head(CHUNKED) + b"5",
        head(length=3)[:-10],
    ],
    ids=["part of the body", "no body", "no last chunk", "no last line", "half a size", "half a head"],
)
def test_a_client_that_stops_inside_its_request_is_told(start, sent):
    server = start()
    assert status(exchange(server, sent, half_close=True)) == 400
    assert chat(server, max_tokens=1)


def test_a_client_that_leaves_after_its_request_frees_its_place(start):
    """Its whole request and the end of its side arrive together; nobody is there to read an answer."""
    engine = FakeEngine(round_seconds=0.01)
    server = start(engine)
    raw = json.dumps({"messages": user(), "max_tokens": 4000}).encode()
    for _ in range(5):
        assert exchange(server, head(length=len(raw)) + raw, half_close=True) == b""
        assert idle_within(engine)
    assert chat(server, max_tokens=1)


def test_a_half_closed_get_is_answered(start):
    request = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    assert status(exchange(start(), request, half_close=True)) == 200


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize(
    "target", [b"/\0", b"http://[::1", b"*/", b"host:1", b"http://", b"/\xff", b"//[", b"?", b"/%zz%ff"]
)
def test_a_target_of_any_bytes_is_answered(start, method, target):
    answer = exchange(start(), method + b" " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n")
    assert status(answer) in (400, 404)
    assert error(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize("end", [b"XX", b"\n\r", b"\r\r", b"0\r"])
def test_a_chunk_that_goes_on_after_its_size_is_400(start, end):
    body = b"%x\r\n%s%s0\r\n\r\n" % (len(RAW), RAW, end)
    assert status(exchange(start(), head(CHUNKED), body)) == 400


@pytest.mark.parametrize(
    "host",
    [(), (b"host: x", b"Host: y"), (b"host: a b",), (b"host: x:y",), (b"host: u@x",), (b"host: [::1",)],
    ids=["none", "two", "a space", "no port", "a user", "half an address"],
)
def test_a_request_that_names_no_host_is_400(start, host):
    server = start()
    answer = exchange(server, head(host=host, length=len(RAW)), RAW)
    assert (status(answer), error(answer)["code"]) == (400, "bad_request")
    assert chat(server, max_tokens=1)


@pytest.mark.parametrize("host", [b"", b"x:", b" a.b-c_d:80 ", b"127.0.0.1:8080", b"[::1]:80", b"x%2dy"])
def test_a_host_of_any_form_is_served(start, host):
    assert status(exchange(start(), head(host=(b"Host:" + host,), length=len(RAW)), RAW)) == 200


def test_a_request_of_http_1_0_needs_no_host(start):
    assert status(exchange(start(), head(host=(), length=len(RAW), version=b"1.0"), RAW)) == 200


@pytest.mark.parametrize(
    "empty", [(b"\r\n",), (b"\r\n\r\n",), (b"\r", b"\n")], ids=["one", "two", "in pieces"]
)
def test_empty_lines_before_a_request_are_skipped(start, empty):
    assert status(exchange(start(), *empty, head(length=len(RAW)), RAW)) == 200


def test_an_empty_line_after_a_body_belongs_to_nobody(start):
    server = start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        for _ in range(2):
            connection.sendall(head(length=len(RAW)) + RAW + b"\r\n")
            received = b""
            while not is_whole(received):
                received += connection.recv(65536)
            assert status(received) == 200
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(65536) == b"", "the connection ends without a word"


@pytest.mark.parametrize("start_of_line", [b"\n", b"\rX", b" \r\n", b"\r\n\n"])
def test_what_is_no_empty_line_before_a_request_is_400(start, start_of_line):
    assert status(exchange(start(), start_of_line + head(length=len(RAW)), RAW)) == 400


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("sent", [0, 1000])
def test_a_chunk_that_passes_the_limit_is_refused_before_its_bytes_arrive(start, path, sent):
    server = start(max_request_mib=1)
    size = (1 << 20) - sent + 1
    before = chunks(b"x" * sent, end=b"") if sent else b""
    answer = exchange(server, head(CHUNKED, path=path), before + b"%x\r\n" % size)
    assert status(answer) == 413
    refused = error(answer)
    assert (refused["type"] if path == "/v1/messages" else refused["code"]) == "request_too_large"
    assert chat(server, max_tokens=1)
