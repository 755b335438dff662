"""Keys, CORS, unknown paths: what a request meets before its body is read."""

import pytest

from tests.server.test_chat_basics import CHAT, user

KEY = {"authorization": "Bearer secret"}
PREFLIGHT = {"origin": "http://ui.example", "access-control-request-method": "POST"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "secret"},
        {"x-api-key": "Secret"},
        {"x-api-key": ""},
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/stats", "/nowhere"])
def test_without_the_key_every_path_is_401(start, headers, path):
    answer = start(api_key="secret").http.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(
    "headers", [KEY, {"x-api-key": "secret"}, {"authorization": "bearer  secret"}, {**KEY, "x-api-key": "no"}]
)
def test_either_header_opens(start, headers):
    server = start(api_key="secret")
    assert server.http.get("/v1/models", headers=headers).status_code == 200
    body = {"messages": user(), "max_tokens": 1}
    assert server.http.post(CHAT, json=body, headers=headers).status_code == 200


def test_messages_clients_get_their_own_error_form(start):
    answer = start(api_key="secret").http.post("/v1/messages", json={})
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"
    assert answer.json()["request_id"] == answer.headers["request-id"]


def test_the_key_is_asked_before_the_body_is_read(start):
    answer = start(api_key="secret", max_request_mib=1).http.post(CHAT, content=b"x" * (2 << 20))
    assert answer.status_code == 401


def test_health_and_preflight_need_no_key(start):
    server = start(api_key="secret", cors=True)
    assert server.http.get("/health").json() == {"status": "ok", "model_loaded": True}
    assert server.http.options("/v1/models", headers=PREFLIGHT).status_code == 204


def test_preflight_allows_what_is_asked(start):
    asked = "authorization,content-type,x-stainless-os"
    headers = {**PREFLIGHT, "access-control-request-headers": asked}
    answer = start(cors=True).http.options(CHAT, headers=headers)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-headers"] == asked
    assert "POST" in answer.headers["access-control-allow-methods"]


def test_cors_headers_come_with_errors_too(start):
    server = start(cors=True)
    for answer in (server.http.get("/v1/models"), server.http.get("/nowhere"), server.http.post(CHAT)):
        assert answer.headers["access-control-allow-origin"] == "*"


def test_no_cors_headers_by_default(start):
    server = start()
    assert "access-control-allow-origin" not in server.http.get("/v1/models", headers=PREFLIGHT).headers
    assert server.http.options("/v1/models", headers=PREFLIGHT).status_code == 405


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("POST", "/v1/nothing/here", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/models/other", 404, "model_not_found"),
    ],
)
def test_wrong_paths_and_methods_are_json(start, method, path, status, code):
    answer = start().http.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_unknown_messages_paths_use_the_anthropic_form(start):
    answer = start().http.get("/v1/messages/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"


def test_models_list_and_lookup(start):
    server = start(model_id="org/my model")
    listing = server.http.get("/v1/models").json()
    (entry,) = listing["data"]
    assert listing["object"] == "list"
    assert (entry["id"], entry["object"], entry["max_model_len"]) == ("org/my model", "model", 4096)
    assert entry["meta"]["n_ctx"] == 4096
    assert server.http.get("/v1/models/org%2Fmy%20model").json() == entry
    assert server.http.get("/v1/models/org/my%20model").json() == entry


def test_head_is_answered(start):
    server = start()
    assert server.http.head("/health").status_code == 200
    assert server.http.head("/").status_code == 404
