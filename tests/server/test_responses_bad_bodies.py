"""Bodies that no client should send: large, deep, and random ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.fuzz import many, scalars, values, words
from tests.server.responses import RESPONSES, body, call, create, message, reasoning, result, user
from tests.server.scripted import engine_for, hybrid
from tests.server.test_responses_request import NULLABLE

COUNT = f"{RESPONSES}/input_tokens"


@pytest.fixture(scope="module")
def script():
    return "Hm.</think>\n\nshort"


@pytest.mark.parametrize("path", [RESPONSES, COUNT])
@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"model": "fake-model", "input": ' + b"[" * 100_000, "nested deeper"),
        (b'{"input": ' + b'{"a":' * 500 + b"1" + b"}" * 501, "nested deeper"),
        (b'{"input": "a", "input": "b"}', "twice"),
        (b'{"top_p": NaN}', "NaN"),
    ],
    ids=range(6),
)
def test_what_is_not_a_json_object_is_400(server, path, raw, said):
    answer = server.http.post(path, content=raw)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "invalid_json"
    assert said in error["message"]


def test_nesting_up_to_the_limit_is_data(server):
    deep = None
    for _ in range(120):
        deep = [deep]
    assert create(server, client_metadata={"deep": deep}, max_output_tokens=1)
    schema = {"type": "object", "properties": {"x": deep}}
    assert create(
        server, tools=[{"type": "function", "name": "f", "parameters": schema}], max_output_tokens=1
    )


def test_fifty_megabytes_of_json(server):
    items = [user("x" * 5000) for _ in range(10_000)]
    raw = json.dumps(body(input=[*items, message("robot")])).encode()
    assert len(raw) > 50_000_000
    answer = server.http.post(RESPONSES, content=raw)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[10000].role")
    assert create(server, max_output_tokens=1)


def test_a_body_over_the_limit_is_413(start):
    server = start(engine_for("x"), hybrid(), max_request_mib=1)
    answer = server.http.post(RESPONSES, content=b"x" * ((1 << 20) + 1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


TEXT = words(
    "user", "assistant", "message", "function", "namespace", "auto", "none", "low", "{}", "x", "call_1"
)
SCALAR = scalars(TEXT)
NESTED = ["type", "role", "content", "text", "name", "id", "mode"]
KEYS = st.sampled_from([*NULLABLE, *NESTED]) | st.text(max_size=5)
MEMBERS = [
    "type",
    "role",
    "content",
    "id",
    "status",
    "call_id",
    "name",
    "namespace",
    "arguments",
    "output",
    "summary",
    "encrypted_content",
]
ANY = values(SCALAR, KEYS)
FORMS = [user(), message("assistant"), message("developer"), reasoning(), call(), result()]


def spoiled(item, members):
    return {**item, **members}


ITEM = st.builds(
    spoiled,
    st.sampled_from(FORMS),
    st.just({})
    | st.dictionaries(
        st.sampled_from(MEMBERS),
        ANY,
        max_size=1,
    ),
)
TOOL = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "namespace"]) | TEXT, "name": TEXT},
    optional={"parameters": ANY, "strict": ANY, "tools": st.lists(ANY, max_size=2), "description": SCALAR},
)
BODY = st.builds(
    spoiled,
    st.fixed_dictionaries(
        {"model": st.just("fake-model"), "input": st.lists(ITEM, min_size=1, max_size=6) | TEXT | ANY},
        optional={
            "tools": st.lists(TOOL, max_size=2) | ANY,
            "stream": st.booleans() | SCALAR,
            "max_output_tokens": st.integers(0, 3) | SCALAR,
            "store": st.booleans(),
        },
    ),
    st.just({}) | st.dictionaries(st.sampled_from(NULLABLE), ANY, max_size=2),
)


@many(300)
@given(BODY)
def test_responses_never_break(server, given_body):
    raw = json.dumps(given_body).encode()
    answer = server.http.post(RESPONSES, content=raw)
    assert answer.status_code in (200, 400, 404), (answer.status_code, answer.text)
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
    elif given_body.get("stream"):
        assert (
            answer.text.count("event: response.completed") + answer.text.count("response.incomplete\n") == 1
        )
        assert "response.failed" not in answer.text
    else:
        counted = server.http.post(COUNT, content=raw)
        assert counted.json()["input_tokens"] == answer.json()["usage"]["input_tokens"]
