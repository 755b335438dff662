"""Bodies that no client should send: each gets a clear error, and the server stays alive."""

import json
import socket

import pytest

from tests.server.test_chat_basics import CHAT, chat, user

DEEP = 100_000


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1, 2]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b"{} {}", "Extra data"),
        (b'{"messages": NaN}', "NaN"),
        (b'{"temperature": -Infinity}', "-Infinity"),
        (b'{"max_tokens": 1, "max_tokens": 2}', "twice"),
        (b"\xff\xfe{\x00}\x00", "UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "UTF-8"),
        (b"[" * DEEP, "nested deeper"),
        (b'{"a":' * DEEP, "nested deeper"),
        (b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", "nested deeper"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "digits"),
    ],
    ids=lambda value: value[:12].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_what_is_not_a_json_object_is_400(start, raw, said):
    server = start()
    answer = server.http.post(CHAT, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_json"
    assert said in answer.json()["error"]["message"]
    assert chat(server, max_tokens=1)


@pytest.mark.parametrize("content_type", [None, "application/json; charset=utf-8", "text/plain"])
def test_content_type_is_not_asked_for(start, content_type):
    raw = b"\xef\xbb\xbf" + json.dumps({"messages": user(), "max_tokens": 1}).encode()
    headers = {} if content_type is None else {"content-type": content_type}
    assert start().http.post(CHAT, content=raw, headers=headers).status_code == 200


def test_large_numbers_are_named(start):
    answer = start().http.post(
        CHAT, content=b'{"messages": [{"role": "user", "content": ""}], "temperature": 1e999}'
    )
    assert answer.json()["error"]["param"] == "temperature"


@pytest.mark.parametrize("digits", ["18446744073709551616", "9" * 4000])
@pytest.mark.parametrize("member", ["max_tokens", "max_completion_tokens", "n", "seed", "top_k"])
def test_integers_beyond_64_bits_are_refused(start, member, digits):
    """No counter, log or line of the console could hold them."""
    raw = f'{{"messages": [{{"role": "user", "content": ""}}], "{member}": {digits}}}'
    answer = start().http.post(CHAT, content=raw.encode())
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, member)


def test_a_lone_surrogate_is_replaced(start):
    raw = rb'{"messages": [{"role": "user", "content": "cut \ud83d"}], "max_tokens": 1}'
    assert start().http.post(CHAT, content=raw).status_code == 200


def test_a_body_over_the_limit_is_413_before_it_is_parsed(start):
    server = start(max_request_mib=1)
    answer = server.http.post(CHAT, content=b"x" * ((1 << 20) + 1))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    assert chat(server, max_tokens=1)


def test_a_chunked_body_over_the_limit_is_413(start):
    server = start(max_request_mib=1)
    answer = server.http.post(CHAT, content=(b"x" * 65536 for _ in range(17)))
    assert answer.status_code == 413
    assert chat(server, max_tokens=1)


def test_a_chunked_body_is_read(start):
    raw = json.dumps({"messages": user(), "max_tokens": 1}).encode()
    pieces = (raw[at : at + 7] for at in range(0, len(raw), 7))
    assert start().http.post(CHAT, content=pieces).status_code == 200


def test_a_body_at_the_limit_is_served(start):
    body = json.dumps({"messages": user(), "max_tokens": 1, "padding": ""})
    raw = body.replace('""', json.dumps("x" * ((1 << 20) - len(body)))).encode()
    assert len(raw) == 1 << 20
    assert start(max_request_mib=1).http.post(CHAT, content=raw).status_code == 200


def test_a_body_that_does_not_arrive_in_time_is_given_up(start):
    server = start(pending_timeout_ms=200)
    server.resident.model().engine.pending_timeout = 0.2
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
        slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        status = slow.recv(4096).split(b"\r\n")[0]
    assert b"503" in status
    assert chat(server, max_tokens=1)


def test_a_compressed_body_is_refused(start):
    answer = start().http.post(CHAT, content=b"\x1f\x8b", headers={"content-encoding": "gzip"})
    assert answer.json()["error"]["param"] == "Content-Encoding"


@pytest.mark.parametrize("raw", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"POST / HTTP/9\r\n\r\n"])
def test_what_is_not_http_gets_400_and_the_door(start, raw):
    server = start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(raw)
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")
    assert server.http.get("/health").status_code == 200
