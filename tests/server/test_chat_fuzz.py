"""Random bodies: never a 500, never a hang, every error in the documented form.

``NINFER_FUZZ_BODIES=10000 pytest tests/server/test_chat_fuzz.py`` runs more of them.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.fuzz import bodies, many, scalars, values, words
from tests.server.test_chat_basics import CHAT
from tests.server.test_chat_request import NULLABLE

TEXT = words(
    "user", "assistant", "tool", "text", "function", "auto", "none", "image_url", "low", "implicit", "{}", "x"
)
SCALAR = scalars(TEXT)
KEYS = st.sampled_from(
    [
        *NULLABLE,
        "role",
        "content",
        "type",
        "text",
        "name",
        "id",
        "function",
        "arguments",
        "parameters",
        "mode",
    ]
) | st.text(max_size=5)
ANY = values(SCALAR, KEYS)
CALL = st.fixed_dictionaries(
    {}, optional={"id": TEXT, "type": TEXT, "function": st.dictionaries(KEYS, ANY, max_size=3) | ANY}
)
PART = st.fixed_dictionaries({}, optional={"type": TEXT, "text": TEXT, "image_url": ANY, "refusal": ANY})
MESSAGE = st.fixed_dictionaries(
    {"role": TEXT},
    optional={
        "content": TEXT | st.lists(PART, max_size=3) | ANY,
        "tool_calls": st.lists(CALL, max_size=2) | ANY,
        "tool_call_id": TEXT,
        "name": SCALAR,
        "reasoning_content": SCALAR,
        "function_call": ANY,
    },
)
USER = st.fixed_dictionaries({"role": st.just("user"), "content": TEXT})
TOOL = st.fixed_dictionaries(
    {"type": st.just("function") | TEXT},
    optional={"function": st.fixed_dictionaries({"name": TEXT}, optional={"parameters": ANY, "strict": ANY})},
)
BODY = bodies(
    {"messages": st.lists(USER | MESSAGE, max_size=4) | ANY},
    optional={
        "tools": st.lists(TOOL, max_size=2) | ANY,
        "stream": st.booleans() | SCALAR,
        "max_tokens": st.integers(0, 3) | SCALAR,
    },
    others=st.dictionaries(KEYS, ANY, max_size=4),
)


@pytest.fixture(scope="module")
def script():
    return "</think>\n\nshort"


@many(500)
@given(BODY)
def test_chat_never_breaks(server, body):
    answer = server.http.post(CHAT, content=json.dumps(body).encode())
    assert answer.status_code in (200, 400, 404), (answer.status_code, answer.text)
    assert answer.headers["x-request-id"]
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert error["type"] == "invalid_request_error"
    elif body.get("stream"):
        assert answer.text.endswith("data: [DONE]\n\n")
        assert '"error"' not in answer.text
    else:
        assert answer.json()["object"] == "chat.completion"
