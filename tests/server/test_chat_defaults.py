"""What a Chat request leaves open: its own value comes before the flag, the flag before the model's."""

import pytest

from tests.server.scripted import engine_for, hybrid
from tests.server.test_chat_basics import chat


@pytest.mark.parametrize(
    ("flags", "members", "expected"),
    [
        ({}, {}, {"temperature": 0.7, "top_k": 20, "top_p": 1.0}),
        ({"temperature": 0.5, "top_p": 0.9}, {}, {"temperature": 0.5, "top_p": 0.9}),
        ({"temperature": 0.5}, {"temperature": 1.5}, {"temperature": 1.5}),
        ({"greedy": True}, {"temperature": 1.5}, {"temperature": 0.0}),
        ({"seed": 7}, {}, {"seed": 7}),
        ({"seed": 7}, {"seed": -1}, {"seed": 2**64 - 1}),
        ({"presence_penalty": 1.5}, {"presence_penalty": 0}, {"presence_penalty": 0.0}),
        ({"top_k_cap": 64}, {"top_k": 64}, {"top_k": 64}),
    ],
)
def test_request_over_flag_over_model(start, flags, members, expected):
    engine = engine_for("x")
    chat(start(engine, hybrid(), **flags), max_tokens=1, **members)
    sampling = engine.requests[-1].sampling
    assert {name: getattr(sampling, name) for name in expected} == expected


def test_seeds_are_fresh_when_nobody_says(start):
    engine = engine_for("x")
    server = start(engine, hybrid())
    for _ in range(3):
        chat(server, max_tokens=1)
    assert len({request.sampling.seed for request in engine.requests}) == 3


def test_default_max_tokens(start):
    engine = engine_for("z", end=False)
    server = start(engine, hybrid(), default_max_tokens=3)
    assert chat(server, max_tokens=None)["usage"]["completion_tokens"] == 3


def test_a_limit_beyond_the_context_is_clamped(start):
    engine = engine_for("y" * 100, end=False)
    answer = chat(start(engine, hybrid()), max_tokens=10**9, enable_thinking=False)
    assert answer["usage"]["total_tokens"] == 4096
    assert answer["choices"][0]["finish_reason"] == "length"
