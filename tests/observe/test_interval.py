"""Interval arithmetic, the histogram, and the thread that writes."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.config import EngineConfig
from ninfer_jax.observe import lines
from ninfer_jax.observe.figures import difference, number, total
from ninfer_jax.observe.histogram import Histogram
from ninfer_jax.observe.interval import is_idle, throughput
from ninfer_jax.observe.worker import Worker
from tests.fakes import Recorder, fake_engine, fake_request

CONFIG = EngineConfig(max_context=256, kv_capacity=256, max_concurrency=2, prefill_chunk=32)


def test_an_interval_is_a_difference_and_gauges_are_the_end():
    engine = fake_engine(CONFIG)
    before = engine.stats()
    recorder = Recorder()
    place = engine.reserve()
    place.submit(fake_request(range(40), 11), recorder)
    recorder.wait()
    place.release()
    after = engine.stats()
    engine.shutdown()
    record = throughput(before, after, 2.0)
    assert record["tokens"]["computed_prefill_tokens"] == 40
    assert record["tokens"]["committed_decode_tokens"] == 10
    assert record["decode"] == {"rounds": 10, "row_rounds": 10, "average_size": 1.0}
    assert record["scheduler"]["running"] == 0
    assert record["context_cache"]["counters"]["root_selections"] == 1
    normalized = record["host_work"]["normalized"]
    decode = record["host_work"]["work_class_seconds"]["decode"]["host"]
    assert normalized["decode_host_seconds_per_round"] == pytest.approx(decode / 10)
    assert not is_idle(record)
    assert lines.throughput(record).startswith(
        "throughput: prefill 20.0 tok/s (40), decode 5.0 tok/s (10), running 0 (prefill 0, decode 0), batch"
    )


def test_an_idle_interval_is_idle_and_divides_by_nothing():
    engine = fake_engine(CONFIG)
    stats = engine.stats()
    engine.shutdown()
    record = throughput(stats, stats, 5.0)
    assert is_idle(record)
    assert record["decode"]["average_size"] is None
    assert record["host_work"]["normalized"]["decode_host_seconds_per_round"] is None


def test_a_waiting_request_is_not_idle():
    engine = fake_engine(CONFIG, start=False)
    stats = engine.stats()
    engine.shutdown()
    waiting = {**stats, "gauges": {**stats["gauges"], "waiting": 1}}
    assert not is_idle(throughput(stats, waiting, 5.0))


TREES = st.recursive(st.integers(0, 100), lambda leaf: st.dictionaries(st.sampled_from("abc"), leaf))


@given(st.dictionaries(st.sampled_from("abc"), TREES))
def test_differences_of_trees(tree):
    assert difference({}, tree) == difference(difference(tree, tree), tree) == tree
    assert total(difference(tree, tree)) == 0


def test_a_missing_figure_is_zero():
    assert number({"a": {"b": 3}}, "a", "b") == 3
    assert number({"a": {"b": 3}}, "a", "c") == number({"a": 3}, "a", "b") == number({}, "x") == 0


@given(st.lists(st.floats(0, 20)))
def test_a_histogram_counts_by_upper_bound(values):
    histogram = Histogram((1, 5, 10))
    for value in values:
        histogram.observe(value)
    buckets, summed = histogram.buckets()
    assert buckets == [
        ("1", sum(value <= 1 for value in values)),
        ("5", sum(value <= 5 for value in values)),
        ("10", sum(value <= 10 for value in values)),
        ("+Inf", len(values)),
    ]
    assert summed == pytest.approx(sum(values))


def test_the_worker_keeps_order_survives_errors_and_drops_when_stuck(caplog, monkeypatch):
    import logging

    monkeypatch.setattr(logging.getLogger("ninfer_jax"), "propagate", True)
    worker = Worker("test", capacity=3)
    gate, running, seen = threading.Event(), threading.Event(), []
    worker.post(lambda: (running.set(), gate.wait(5)))
    assert running.wait(5)
    worker.post(seen.append, 1)
    worker.post(int, "not a number")
    worker.post(seen.append, 2)
    worker.post(seen.append, 3)  # the queue is full
    gate.set()
    worker.close()
    assert seen == [1, 2]
    assert "1 log records were dropped" in caplog.text
    assert "could not be written" in caplog.text
