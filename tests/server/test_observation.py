"""A mixed run over HTTP: answers, /stats, /metrics and the request log tell one story."""

import json
import threading
from pathlib import Path

import jsonschema
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ninfer_jax.config import EngineConfig
from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.observe.request_log import RequestLog
from ninfer_jax.observe.server_start import server_start
from tests.fakes import fake_engine, fake_info
from tests.server.fake_frontend import ByteFrontend, ByteSession
from tests.server.harness import LiveServer
from tests.server.test_chat_basics import CHAT, user

CONFIG = EngineConfig(max_context=512, kv_capacity=2048, max_concurrency=4, prefill_chunk=64)
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/request_log.schema.json").read_text())
SECRET_WORD = "rhubarb"


class LetterSession(ByteSession):
    """The fake device draws any of 1,000 tokens; here each is a letter."""

    def preview(self, token_ids):
        return super().preview([97 + token % 26 for token in token_ids])

    def commit(self, token_ids):
        return super().commit([97 + token % 26 for token in token_ids])


class LetterFrontend(ByteFrontend):
    def session(self, prepared, *, stop=(), **options):
        return LetterSession(tuple(stop))


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """(usages of the answers, /stats, samples of /metrics by (name, labels), events of the log)."""
    path = tmp_path_factory.mktemp("story") / "log.jsonl"
    monitor = ServeMonitor(request_log=RequestLog(path), interval=0.05)
    engine = fake_engine(CONFIG, observer=monitor)
    facts = server_start(
        fake_info(CONFIG), artifact=Path("m"), weights="f32", options={}, stats=engine.stats(), device={}
    )
    monitor.start(engine.stats, "fake", facts)
    usages = []
    with LiveServer(engine, LetterFrontend(512), monitor=monitor, api_key="hunter2") as server:
        server.http.headers["authorization"] = "Bearer hunter2"

        def ask(**members):
            body = {"messages": user(f"{SECRET_WORD} " * 20), "max_tokens": 12, **members}
            if not body.get("stream"):
                answer = server.http.post(CHAT, json=body)
                if answer.status_code == 200:
                    usages.append(answer.json()["usage"])
                return answer.status_code
            with server.http.stream("POST", CHAT, json=body) as answer:
                chunks = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
                usages.extend(chunk["usage"] for chunk in chunks if chunk.get("usage"))
            return answer.status_code

        server.http.headers["x-request-id"] = "mine-1"
        assert ask() == 200
        streaming = {"stream": True, "stream_options": {"include_usage": True}}
        threads = [
            threading.Thread(
                target=ask, kwargs={**(streaming if index % 2 else {}), "max_tokens": 20 + index}
            )
            for index in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ask(max_tokens=0) == 200
        assert ask(stop=["a"], max_tokens=100) == 200
        assert ask(messages=user("x" * 600)) == 400
        assert ask(messages=[]) == 400
        assert ask(temperature=9) == 400
        stats = server.http.get("/stats").json()
        page = server.http.get("/metrics").text
    engine.shutdown()
    monitor.close()
    samples = {
        (sample.name, sample.labels.get("finished_reason")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if "le" not in sample.labels
    }
    return usages, stats, samples, [json.loads(line) for line in path.read_text().splitlines()]


def of(events, kind):
    return [event for event in events if event["event"] == kind]


def test_tokens_of_the_answers_are_the_tokens_everywhere(story):
    usages, stats, samples, events = story
    done = [event["result"] for event in of(events, "request_done")]
    assert len(usages) == len(done) == 15
    counters = stats["counters"]
    intervals = [event["tokens"] for event in of(events, "throughput")]
    parts = ("first_tokens", "committed_decode_tokens", "committed_control_tokens")
    for name, metric, total in (
        ("prompt_tokens", "ninfer:prompt_tokens_total", counters["prompt_tokens"]),
        ("completion_tokens", "ninfer:generation_tokens_total", sum(counters[part] for part in parts)),
    ):
        told = sum(usage[name] for usage in usages)
        assert told == sum(result[name] for result in done) == total == samples[metric, None]
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert cached > 0
    assert cached == sum(result["prefix_cache_hit_tokens"] for result in done)
    assert cached == counters["reused_prompt_tokens"] == samples["ninfer:prefix_cache_hits_total", None]
    computed = sum(result["computed_prefill_tokens"] for result in done)
    assert computed == counters["computed_prefill_tokens"]
    assert computed == sum(interval["computed_prefill_tokens"] for interval in intervals)


def test_outcomes_are_counted_once(story):
    _, stats, samples, events = story
    reasons = [event["result"]["finish_reason"] for event in of(events, "request_done")]
    finished = stats["counters"]["requests_finished"]
    assert {reason: reasons.count(reason) for reason in finished} == finished
    assert samples["ninfer:request_success_total", "length"] == finished["output_limit"]
    assert samples["ninfer:request_success_total", "stop"] == finished["stop_string"]
    assert len(of(events, "request_start")) == len(reasons)


def test_only_a_prompt_that_could_not_be_prepared_is_a_rejection(story):
    *_, events = story
    (rejected,) = of(events, "request_rejected")
    assert rejected["error"]["code"] == "context_length_exceeded"
    assert rejected["error"]["status"] == 400
    assert rejected["messages"] == 1


def test_the_log_fits_its_schema_and_keeps_secrets(story):
    *_, events = story
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for event in events:
        validator.validate(event)
    raw = json.dumps(events)
    assert SECRET_WORD not in raw
    assert "hunter2" not in raw
    (start,) = of(events, "request_start")[:1]
    assert (start["protocol"], start["stream"]) == ("openai_chat", False)
    assert start["http_request_id"].startswith("req_")
    assert start["client_request_id"] == "mine-1"
