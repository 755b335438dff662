"""What the scripted engine shows of the three protocols, where the text does not matter: on the real one.

Each case runs for Chat Completions, Responses and Messages; a dialect says how its protocol spells things.
"""

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.server.dialects import (
    ALL,
    STREAMS,
    Chat,
    Messages,
    Responses,
    aggregate_and_stream,
    ask,
    becomes_idle,
    each_protocol,
    each_with_stops,
    refuse,
)
from tests.server.real_engine import MAX_CONTEXT
from tests.server.responses import RESPONSES
from tests.server.test_chat_basics import CHAT
from tests.server.test_chat_observations import progress
from tests.server.test_messages_basics import COUNT


@each_protocol
@aggregate_and_stream
@pytest.mark.parametrize("tokens", [1, 2, 33])
def test_the_limit_is_exact(real, dialect, stream, tokens):
    answer = ask(real, dialect, stream=stream, tokens=tokens)
    assert (answer.completion, answer.finish) == (tokens, dialect.limit)
    assert len(answer.text) == tokens, "each token is one printable character"


@each_protocol
def test_stream_and_aggregate_say_the_same(real, dialect):
    whole, streamed = (ask(real, dialect, stream=stream, text="the same", tokens=60) for stream in STREAMS)
    assert streamed.text == whole.text
    assert (streamed.finish, streamed.prompt, streamed.completion) == (
        whole.finish,
        whole.prompt,
        whole.completion,
    )


def test_the_protocols_agree_on_prompt_and_answer(real):
    answers = [ask(real, dialect, text="one prompt", tokens=40) for dialect in (Chat, Responses, Messages)]
    assert len({(answer.text, answer.prompt, answer.completion) for answer in answers}) == 1


@each_with_stops
@aggregate_and_stream
@pytest.mark.parametrize("span", [slice(5, 6), slice(7, 12)], ids=["one token", "across tokens"])
def test_a_stop_string_ends_the_answer_and_is_not_shown(real, dialect, stream, span):
    free = ask(real, dialect, text="stop here", tokens=40).text
    stop = free[span]
    answer = ask(real, dialect, stream=stream, text="stop here", tokens=40, **dialect.stop(stop))
    assert answer.text == free[: free.index(stop)]
    assert answer.finish == dialect.stopped
    assert answer.completion == free.index(stop) + len(stop)
    if dialect is Messages:
        assert answer.whole["stop_sequence"] == stop


@each_protocol
@aggregate_and_stream
def test_the_context_ends_an_answer(real, dialect, stream):
    answer = ask(real, dialect, stream=stream, text="long", tokens=100_000)
    assert answer.finish == dialect.context_limit
    assert answer.prompt + answer.completion == MAX_CONTEXT + 1, "the last token needs no place"


@each_protocol
def test_a_prompt_beyond_the_context_is_refused(real, dialect):
    error = refuse(real, dialect, text="x" * 2 * MAX_CONTEXT)
    assert error["code"] == "context_length_exceeded"
    assert str(MAX_CONTEXT) in error["message"]


@pytest.mark.parametrize("dialect", ALL[:2])
@aggregate_and_stream
def test_no_tokens_asked_for_runs_the_prompt_only(real, dialect, stream):
    answer = ask(real, dialect, stream=stream, text="prompt only", tokens=0)
    assert (answer.text, answer.completion, answer.finish) == ("", 0, dialect.limit)


@each_protocol
@aggregate_and_stream
def test_a_repeated_prompt_is_read_from_the_cache(real, dialect, stream):
    text = f"{dialect.__name__} {stream} " + "cache " * 40
    first, second = (ask(real, dialect, stream=stream, text=text, tokens=20) for _ in range(2))
    assert first.cached < 64 <= second.cached < second.prompt
    assert first.text == second.text


@each_protocol
def test_requests_at_once_answer_as_alone(real, dialect):
    texts = [f"request {number} " * (number + 1) for number in range(8)]
    alone = [ask(real, dialect, text=text, tokens=24).text for text in texts]
    with ThreadPoolExecutor(len(texts)) as pool:
        at_once = list(
            pool.map(
                lambda item: ask(real, dialect, stream=item[0] % 2 == 1, text=item[1], tokens=24),
                enumerate(texts),
            )
        )
    assert [answer.text for answer in at_once] == alone


@pytest.mark.parametrize("dialect", [ALL[0]])
def test_a_seed_decides_a_sampled_answer(real, dialect):
    sampled = {"temperature": 1.5, "top_p": 1, "ignore_eos": True, "tokens": 24}
    first, again, other = (ask(real, dialect, seed=seed, **sampled).text for seed in (7, 7, 8))
    assert first == again != other


@each_protocol
@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 7}, "top_p"),
        ({"stream": "yes"}, "stream"),
        ({"tools": 5}, "tools"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_wrong_values_are_named(real, dialect, members, named):
    error = refuse(real, dialect, **members)
    assert named in error["message"]


@each_protocol
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff"])
def test_what_is_not_an_object_is_400(real, dialect, raw):
    answer = real.http.post(dialect.path, content=raw)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_json"


@each_protocol
def test_a_stream_that_is_left_frees_its_place(real, dialect):
    body = dialect.streamed(dialect.body(text="leave me", tokens=400))
    with (
        httpx.Client(base_url=real.url, timeout=60, trust_env=False) as client,
        client.stream("POST", dialect.path, json=body) as answer,
    ):
        next(answer.iter_lines())
    assert becomes_idle(real)
    assert ask(real, dialect, tokens=4).completion == 4


@each_protocol
def test_waiting_clients_that_leave_free_their_places(real, dialect):
    """More than can run, in every stage at once; all of them close their connections."""

    def leave(number):
        body = dialect.body(text=f"gone {number} " * 8, tokens=400)
        with httpx.Client(base_url=real.url, timeout=0.05 * (number % 4 + 1), trust_env=False) as client:
            try:
                client.post(dialect.path, json=body)
            except httpx.TimeoutException:
                return True
        return False

    with ThreadPoolExecutor(8) as pool:
        left = list(pool.map(leave, range(8)))
    assert any(left)
    assert becomes_idle(real)
    assert ask(real, dialect, tokens=4).completion == 4


def test_chat_timings_agree_with_usage(real):
    for stream in STREAMS:
        answer = ask(real, Chat, stream=stream, text="timed " * 20, tokens=20)
        timings = answer.whole["timings"]
        assert (timings["cache_n"], timings["prompt_n"]) == (answer.cached, answer.prompt - answer.cached)
        assert timings["predicted_n"] == answer.completion == 20
        assert timings["predicted_ms"] > 0
        assert timings["prompt_ms"] > 0


def test_chat_timings_per_token_grow(real):
    body = {**Chat.streamed(Chat.body(tokens=12)), "timings_per_token": True}
    lines = real.http.post(CHAT, json=body).text.split("\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    texts = [c for c in chunks if c["choices"] and c["choices"][0]["delta"].get("content")]
    counts = [chunk["timings"]["predicted_n"] for chunk in texts]
    assert counts == sorted(counts)
    assert counts[-1] == 12


def test_chat_progress_begins_at_the_cache_and_ends_at_the_total(real):
    messages = [{"role": "user", "content": "progress " * 40}]
    for _ in range(2):
        events, usage = progress(real, messages=messages)
        assert events[0]["processed"] == events[0]["cache"] == usage["prompt_tokens_details"]["cached_tokens"]
        assert events[-1]["processed"] == events[-1]["total"] == usage["prompt_tokens"]
        for before, after in itertools.pairwise(events):
            assert before["processed"] < after["processed"]


def test_responses_continue_a_stored_one(real):
    first = ask(real, Responses, text="first turn " * 8, tokens=20)
    second = ask(real, Responses, text="next", tokens=8, previous_response_id=first.whole["id"])
    assert second.prompt > first.prompt + first.completion
    assert second.cached >= 64
    assert real.http.get(f"{RESPONSES}/{second.whole['id']}").json() == second.whole


@pytest.mark.parametrize("text", ["short", "a longer one " * 12])
def test_counts_equal_usage(real, text):
    for dialect, path in ((Responses, f"{RESPONSES}/input_tokens"), (Messages, COUNT)):
        counted = real.http.post(path, json=dialect.body(text=text)).json()["input_tokens"]
        assert counted == ask(real, dialect, text=text, tokens=1).prompt


def test_nothing_is_left_running(real):
    """Mixed work from many threads, some of it wrong, some abandoned: then the server is as before."""
    failures = []

    def work(number):
        dialect = (Chat, Responses, Messages)[number % 3]
        try:
            ask(real, dialect, stream=number % 2 == 1, text=f"mixed {number}", tokens=10)
            refuse(real, dialect, temperature=[])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert becomes_idle(real)
    assert real.http.get("/health").status_code == 200
