"""Everything that is observed of a mixed run, against each other and against the requests' own usage."""

import dataclasses
import json
import logging
import threading
from pathlib import Path

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ninfer_jax.errors import ServerOverloadedError
from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.observe.request_log import RequestLog
from ninfer_jax.types import Finished
from tests.fakes import FakeSession, Recorder, fake_engine, fake_request
from tests.observe.monitored import CONFIG, SHAPE, ExplodingSession, Run, ToolSession

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/request_log.schema.json").read_text())


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path)
    prompt = list(range(200))
    run.send("warm", prompt, 5).wait()
    for index in range(6):
        run.send(f"hit{index}", [*prompt, index], 10 + index)
    run.send("stopped", [1, 2, 3], 50, session=FakeSession(stop_after=4))
    run.send("forced", [4, 5, 6], 20, session=FakeSession(forces={3: (7, 8)}))
    run.send("tools", [9, 8], 8, session=ToolSession())
    run.send("exploding", [3, 3], 8, session=ExplodingSession())
    run.send("long", list(range(513)), 4)
    run.send("cancelled", prompt, 300, cancel=True)
    run.send("nothing", [5], 0)
    return run.finish()


def finished(run):
    return [
        recorder.terminal for recorder, _ in run.recorders.values() if isinstance(recorder.terminal, Finished)
    ]


def test_every_line_fits_the_schema(run):
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for record in run.events:
        validator.validate(record)
    kinds = {record["event"] for record in run.events}
    expected = {"server_start", "request_start", "request_done", "request_error", "request_rejected"}
    assert kinds == {*expected, "throughput"}
    assert len({record["server_instance_id"] for record in run.events}) == 1


def test_one_terminal_for_every_start_and_none_for_a_rejection(run):
    starts = [record["request_id"] for record in run.of("request_start")]
    terminals = [record["request_id"] for record in run.of("request_done") + run.of("request_error")]
    assert sorted(starts) == sorted(terminals)
    assert len(set(starts)) == len(starts) == len(run.recorders)
    (rejected,) = run.of("request_rejected")
    assert rejected["request_id"] not in starts
    assert rejected["error"]["code"] == "context_length_exceeded"
    assert rejected["error"]["status"] == 400


def test_tokens_agree_everywhere(run):
    """Usage of the answers = /stats = /metrics = the sum of the log's records = the sum of intervals."""
    usage = [event.usage for event in finished(run)]
    done = [record["result"] for record in run.of("request_done")]
    intervals = [record["tokens"] for record in run.of("throughput")]
    counters = run.stats["counters"]
    failed_prompt = 2  # the exploding request was admitted, and has no usage
    prompt = sum(u.prompt_tokens for u in usage)
    assert prompt == sum(r["prompt_tokens"] for r in done)
    never_admitted = sum(
        event.usage.prompt_tokens for event in finished(run) if event.timings.queue == event.timings.total
    )
    assert counters["prompt_tokens"] == prompt - never_admitted + failed_prompt
    assert run.metric("prompt_tokens_total") == counters["prompt_tokens"]
    assert sum(i["prompt_tokens"] for i in intervals) == counters["prompt_tokens"]

    cached = sum(u.cached_tokens for u in usage)
    assert cached > 0
    assert cached == sum(r["prefix_cache_hit_tokens"] for r in done) == counters["reused_prompt_tokens"]
    assert run.metric("prefix_cache_hits_total") == cached

    output = sum(u.completion_tokens for u in usage)
    drawn = ("first_tokens", "committed_decode_tokens", "committed_control_tokens")
    assert output == sum(r["completion_tokens"] for r in done)
    assert output == sum(counters[part] for part in drawn)
    assert output == run.metric("generation_tokens_total")
    assert output == sum(i[part] for i in intervals for part in drawn)
    assert output == run.metric("request_generation_tokens_sum")


def test_outcomes_agree_everywhere(run):
    reasons = run.stats["counters"]["requests_finished"]
    assert reasons == {
        "stop": 1, "stop_string": 0, "output_limit": 10, "context_limit": 0, "cancelled": 1
    }  # fmt: skip
    assert run.metric("request_success_total", finished_reason="stop") == 1
    assert run.metric("request_success_total", finished_reason="length") == 10
    assert run.metric("request_success_total", finished_reason="abort") == 1
    assert run.metric("request_success_total", finished_reason="error") == 1
    assert len(run.of("request_done")) == 12
    assert run.metric("e2e_request_latency_seconds_count") == 12
    assert run.metric("request_queue_time_seconds_count") == run.stats["counters"]["requests_admitted"]


def test_gaps_count_every_token_after_the_first_of_a_stream(run):
    counters = run.stats["counters"]
    later = counters["committed_decode_tokens"] + counters["committed_control_tokens"]
    assert run.metric("inter_token_latency_seconds_count") == later
    assert run.metric("time_to_first_token_seconds_count") == counters["first_tokens"]
    assert run.metric("iteration_tokens_total_count") == counters["decode_rounds"]
    assert run.metric("iteration_tokens_total_sum") == counters["committed_decode_tokens"]


def test_times_of_a_request_add_up(run):
    for record in run.of("request_done"):
        times, timing = record["timings_seconds"], record["engine_timing"]
        assert times["total"] >= times["prepare"] + times["queue"] + times["prefill"] + times["decode"] - 1e-6
        host = dict(timing["host_exposed_seconds"])
        assert host.pop("total") == pytest.approx(sum(host.values()))
        if times["ttft"] is not None:
            assert times["prepare"] + times["queue"] <= times["ttft"] <= times["total"]


def test_tool_facts_are_logged_and_text_is_not(run):
    (record,) = [r for r in run.of("request_done") if r["http_request_id"] == "tools"]
    result = record["result"]
    assert result["tool_call_parse"] == {
        "saw_complete_marker": True,
        "calls": 1,
        "empty_arguments_omitted": 0,
        "schema_mismatches": 2,
        "fallback_reason": "undeclared_tool",
    }
    assert result["matched_stop_string"]
    raw = run.path.read_text()
    assert "END" not in raw
    assert "secret text" not in raw
    assert "hunter2" not in raw
    assert run.of("server_start")[0]["argv"].count("<redacted>") == 1


def test_the_page_parses_and_has_the_names_dashboards_look_for(run):
    names = {family.name for family in text_string_to_metric_families(run.page)}
    assert {
        "ninfer:num_requests_running",
        "ninfer:num_requests_waiting",
        "ninfer:kv_cache_usage_perc",
        "ninfer:prompt_tokens",
        "ninfer:time_to_first_token_seconds",
        "ninfer:e2e_request_latency_seconds",
    } <= names
    assert run.metric("num_requests_running") == 0
    assert run.metric("kv_cache_usage_perc") == 0
    assert 'model_name="tiny"' in run.page


def test_console_lines_say_who_ended_and_how(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("ninfer_jax"), "propagate", True)
    with caplog.at_level(logging.DEBUG, "ninfer_jax"):
        run = Run(tmp_path)
        run.send("a", [1, 2, 3], 5)
        run.send("b", [1, 2, 3], 5, session=ToolSession())
        run.send("c", [3, 3], 8, session=ExplodingSession())
        run.send("d", list(range(600)), 5)
        run.finish()
    text = "\n".join(caplog.messages)
    assert "request 1 openai_chat done (output_limit): prompt 3, output 5, first token" in text
    assert "tool-call markup returned as text (undeclared_tool)" in text
    assert "request 3 openai_chat failed: engine_error" in text
    assert "request 4 openai_chat rejected: 400 context_length_exceeded" in text
    assert "throughput: " in text
    assert "secret text" not in text


def test_a_request_that_no_server_announced_is_logged_too(tmp_path):
    monitor = ServeMonitor(request_log=RequestLog(tmp_path / "log"), interval=0)
    engine = fake_engine(CONFIG, observer=monitor)
    recorder = Recorder()
    engine.reserve().submit(fake_request([1], 2), recorder)
    recorder.wait()
    engine.shutdown()
    monitor.close()
    start, done = (json.loads(line) for line in (tmp_path / "log").read_text().splitlines())
    assert (start["event"], start["protocol"]) == ("request_start", "library")
    assert done["event"] == "request_done"


def test_overload_is_not_a_measured_request(tmp_path):
    run = Run(tmp_path)
    places = [run.engine.reserve() for _ in range(CONFIG.max_concurrency + CONFIG.max_pending_requests)]
    with pytest.raises(ServerOverloadedError):
        run.engine.reserve()
    for place in places:
        place.release()
    run.finish()
    assert run.of("request_start") == run.of("request_rejected") == run.of("throughput") == []


def test_no_thread_is_left(tmp_path):
    before = set(threading.enumerate())
    run = Run(tmp_path)
    run.send("one", [1, 2, 3], 5)
    assert {"observe", "throughput"} <= {thread.name for thread in set(threading.enumerate()) - before}
    run.finish()
    assert not {thread.name for thread in set(threading.enumerate()) - before} & {"observe", "throughput"}


def test_shape_fields_reach_the_log(tmp_path):
    run = Run(tmp_path)
    shape = dataclasses.replace(
        SHAPE, is_thinking=True, requested_effort="low", resolved_effort="low", thinking_budget=64
    )
    run.monitor.prepared("x", shape, 0.0)
    place, recorder = run.engine.reserve(), Recorder()
    place.submit(fake_request([1], 1, request_id="x"), recorder)
    run.recorders["x"] = (recorder, place)
    run.finish()
    (start,) = run.of("request_start")
    assert start["requested_reasoning_effort"] == start["resolved_reasoning_effort"] == "low"
    assert (start["thinking"], start["thinking_budget"], start["messages"]) == (True, 64, 2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_costs_events_and_never_requests(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "ninfer_jax")
    run = Run(tmp_path, Path("/dev/full"))
    recorders = [run.send(f"r{index}", [index + 1] * 20, 10) for index in range(8)]
    for recorder in recorders:
        recorder.wait()
        assert isinstance(recorder.terminal, Finished)
    for _, place in run.recorders.values():
        place.release()
    run.engine.shutdown()
    run.monitor.close()
    lost = [record for record in caplog.records if record.name == "ninfer_jax.observe.request_log"]
    assert len(lost) == 1
    assert "No space left on device" in lost[0].getMessage()
    assert all(record.exc_info is None for record in caplog.records)
