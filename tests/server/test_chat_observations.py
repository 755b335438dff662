"""llama.cpp's observations: timings, per-token snapshots, prompt progress."""

import itertools
import math

from ninfer_jax.server.protocols.chat_objects import final_timings
from ninfer_jax.types import Finished, FinishReason, OutputSummary, Timings, Usage
from tests.server.fake_engine import FakeEngine, say
from tests.server.scripted import engine_for, hybrid
from tests.server.test_chat_basics import chat, stream, user

FIELDS = {
    "cache_n",
    "prompt_n",
    "prompt_ms",
    "prompt_per_token_ms",
    "prompt_per_second",
    "predicted_n",
    "predicted_ms",
    "predicted_per_token_ms",
    "predicted_per_second",
}


def finished(prompt=10, cached=4, completion=5, prompt_s=0.06, decode_s=0.2, **counters):
    usage = Usage(prompt, cached, completion, 0)
    return Finished(
        FinishReason.STOP, usage, Timings(prompt=prompt_s, decode=decode_s), OutputSummary(), counters
    )


def test_chat_timings_follow_the_formulas():
    timings = final_timings(finished())
    assert set(timings) == FIELDS
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (4, 6, 5)
    assert math.isclose(timings["prompt_per_token_ms"], 10.0)
    assert math.isclose(timings["prompt_per_second"], 100.0)
    assert math.isclose(timings["predicted_per_token_ms"], 50.0)
    assert math.isclose(timings["predicted_per_second"], 20.0)


def test_chat_timings_without_work_are_zero_not_infinite():
    for case in (
        finished(completion=0, decode_s=0.0),
        finished(completion=1, decode_s=0.0),
        finished(cached=10, prompt_s=0.0),
        finished(prompt_s=0.0, decode_s=0.0),
    ):
        assert all(math.isfinite(value) for value in final_timings(case).values())
    assert final_timings(finished(completion=1, decode_s=0.0))["predicted_per_second"] == 0


def test_chat_timings_name_draft_work_only_when_there_was_some():
    drafted = final_timings(finished(speculative={"drafted_tokens": 9, "accepted_tokens": 6}))
    assert (drafted["draft_n"], drafted["draft_n_accepted"]) == (9, 6)
    assert "draft_n" not in final_timings(finished(speculative={"drafted_tokens": 0}))


def test_chat_timings_agree_with_usage(start):
    server = start(FakeEngine(say("hello"), prefill_seconds=0.001, round_seconds=0.001))
    for _ in range(2):
        answer = chat(server)
        timings, usage = answer["timings"], answer["usage"]
        assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
        assert timings["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]
        assert timings["predicted_n"] == usage["completion_tokens"]
    assert timings["cache_n"] > 0


def test_chat_timings_per_token_stand_on_text_chunks_and_grow(start):
    server = start(engine_for("thought</think>\n\nanswer", round_seconds=0.002), hybrid())
    last = 0
    for chunk in stream(server, max_tokens=100, timings_per_token=True):
        delta = chunk["choices"][0]["delta"]
        if delta.get("content") or delta.get("reasoning_content"):
            assert set(chunk["timings"]) == FIELDS
            assert chunk["timings"]["predicted_n"] > last
            last = chunk["timings"]["predicted_n"]
        elif chunk["choices"][0]["finish_reason"] is None:
            assert "timings" not in chunk


def test_chat_timings_per_token_count_hidden_tokens(start):
    """Text held for a stop string is counted when it shows."""
    server = start(FakeEngine(say("abcdefgh"), round_seconds=0.01))
    chunks = stream(server, stop=["efgX"], timings_per_token=True)
    counts = {
        chunk["choices"][0]["delta"]["content"]: chunk["timings"]["predicted_n"]
        for chunk in chunks
        if chunk["choices"][0]["delta"].get("content")
    }
    held = next(text for text in counts if "efgh" in text or text.startswith("e"))
    assert counts[held] >= 8


def progress(server, **members):
    chunks = stream(server, return_progress=True, stream_options={"include_usage": True}, **members)
    found = [
        (index, chunk["prompt_progress"]) for index, chunk in enumerate(chunks) if "prompt_progress" in chunk
    ]
    assert all(chunks[index]["choices"] == [] for index, _ in found)
    first_text = next(
        (
            i
            for i, chunk in enumerate(chunks)
            if chunk["choices"] and chunk["choices"][0]["delta"].get("content")
        ),
        len(chunks),
    )
    assert found[-1][0] < first_text
    return [event for _, event in found], chunks[-1]["usage"]


def test_chat_progress_begins_at_the_cache_and_ends_at_the_total(start):
    server = start(FakeEngine(say("done"), prefill_chunk=100, prefill_seconds=0.01))
    for _ in range(2):
        events, usage = progress(server, messages=user("word " * 200))
        assert events[0]["processed"] == events[0]["cache"] == usage["prompt_tokens_details"]["cached_tokens"]
        assert events[-1]["processed"] == events[-1]["total"] == usage["prompt_tokens"]
        for before, after in itertools.pairwise(events):
            assert before["processed"] < after["processed"]
            assert before["time_ms"] <= after["time_ms"]
            assert (before["total"], before["cache"]) == (after["total"], after["cache"])


def test_chat_progress_of_a_prompt_only_request(start):
    events, usage = progress(start(), max_tokens=0)
    assert events[-1]["processed"] == usage["prompt_tokens"]


def test_chat_progress_is_off_by_default_and_needs_a_stream(start):
    server = start()
    assert not any("prompt_progress" in chunk for chunk in stream(server))
    assert "prompt_progress" not in chat(server, return_progress=True)
