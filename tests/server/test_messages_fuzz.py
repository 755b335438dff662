"""Random bodies: never a 500, never a hang, every error in Anthropic's form.

``NINFER_FUZZ_BODIES=10000 pytest tests/server/test_messages_fuzz.py`` runs more of them.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.fuzz import bodies, many, scalars, values, words
from tests.server.test_messages_basics import COUNT, MESSAGES, anthropic_error, fold
from tests.server.test_messages_request import NULLABLE

TEXT = words(
    "user",
    "assistant",
    "system",
    "text",
    "tool_use",
    "tool_result",
    "thinking",
    "image",
    "auto",
    "none",
    "t1",
    "5m",
)
SCALAR = scalars(TEXT, largest=2000)
KEYS = st.sampled_from([*NULLABLE, "type", "text", "id", "name", "input", "effort", "budget_tokens", "ttl"])
ANY = values(SCALAR, KEYS)
MARK = st.sampled_from([None, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}]) | ANY
IDS = st.sampled_from(["t1", "t2", ""]) | TEXT
BLOCK = (
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}, optional={"cache_control": MARK})
    | st.fixed_dictionaries({"type": st.just("thinking"), "thinking": TEXT}, optional={"signature": SCALAR})
    | st.fixed_dictionaries(
        {
            "type": st.just("tool_use"),
            "id": IDS,
            "name": TEXT,
            "input": st.dictionaries(TEXT, ANY, max_size=2),
        },
        optional={"cache_control": MARK},
    )
    | st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": IDS},
        optional={"content": TEXT | ANY, "is_error": SCALAR, "cache_control": MARK},
    )
    | st.fixed_dictionaries({"type": TEXT}, optional={"text": ANY, "source": ANY})
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]) | TEXT},
    optional={"content": TEXT | st.lists(BLOCK, max_size=3) | ANY},
)
USER = st.fixed_dictionaries({"role": st.just("user"), "content": TEXT | st.lists(BLOCK, max_size=2)})
TOOL = st.fixed_dictionaries(
    {"name": TEXT, "input_schema": st.dictionaries(TEXT, ANY, max_size=2) | ANY},
    optional={"type": TEXT, "strict": SCALAR, "cache_control": MARK, "input_examples": ANY},
)
BODY = bodies(
    {"messages": st.lists(USER | MESSAGE, max_size=4) | ANY},
    optional={
        "model": st.just("m") | SCALAR,
        "tools": st.lists(TOOL, max_size=2) | ANY,
        "stream": st.booleans() | SCALAR,
        "max_tokens": st.integers(1, 3) | SCALAR,
        "system": TEXT | st.lists(BLOCK, max_size=2) | ANY,
    },
    others=st.dictionaries(KEYS, ANY, max_size=2),
)


@pytest.fixture(scope="module")
def script():
    return "</think>\n\nshort"


@many(300)
@given(BODY)
def test_messages_never_break(server, body):
    body.setdefault("model", "m")
    for path in (MESSAGES, COUNT):
        answer = server.http.post(path, content=json.dumps(body).encode())
        assert answer.status_code in (200, 400), (answer.status_code, answer.text)
        assert answer.headers["request-id"]
        if answer.status_code == 400:
            anthropic_error(answer, "invalid_request_error")
        elif path == COUNT:
            assert answer.json()["input_tokens"] > 0
        elif body.get("stream"):
            frames = [
                frame.partition("data: ")[2] for frame in answer.text.split("\n\n") if "data: " in frame
            ]
            fold([event for event in map(json.loads, frames) if event["type"] != "ping"])
        else:
            assert answer.json()["type"] == "message"
