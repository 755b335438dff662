"""What a server says of its work: at rest nothing is held, and all its accounts agree."""

import json
from pathlib import Path
from typing import Any

import jsonschema
from prometheus_client.parser import text_string_to_metric_families

MAX_VALIDATED = 2000
SCHEMA = Path(__file__).parents[2] / "docs" / "request_log.schema.json"
GAUGES_AT_REST = (
    "running",
    "prefilling",
    "decode_ready",
    "waiting",
    "terminal_pending",
    "device_state_slots_occupied",
    "device_main_pages_occupied",
    "device_main_pages_reserved",
)
Event = dict[str, Any]


def held(stats: dict[str, Any]) -> list[str]:
    """What a server at rest must not hold any more."""
    occupied = {name: stats["gauges"][name] for name in GAUGES_AT_REST if stats["gauges"][name]}
    problems = [f"at rest the engine holds {occupied}"] if occupied else []
    if stats["outstanding"]:
        problems.append(f"{stats['outstanding']} reservations have not come back")
    pages = sum(stats["gauges"][f"device_main_pages_{kind}"] for kind in ("cached", "free"))
    if pages != stats["capacity"]["main_pages"]:
        problems.append(f"{pages} of {stats['capacity']['main_pages']} pages are free or cached")
    return problems


def accounts(stats: dict[str, Any], page: str, log: list[Event]) -> list[str]:
    """``/metrics`` must parse, and say what ``/stats`` and the request log say."""
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if "le" not in sample.labels:
                samples[sample.name] = samples.get(sample.name, 0) + sample.value
    counters = stats["counters"]
    generated = ("first_tokens", "committed_decode_tokens", "committed_control_tokens")
    done = [event["result"] for event in log if event["event"] == "request_done"]
    accounts = {
        "prompt tokens": (
            counters["prompt_tokens"],
            samples["ninfer:prompt_tokens_total"],
            None,
        ),
        "generated tokens": (
            sum(counters[name] for name in generated),
            samples["ninfer:generation_tokens_total"],
            sum(result["completion_tokens"] for result in done),
        ),
        "requests finished": (
            sum(counters["requests_finished"].values()),
            None,
            len(done),
        ),
        "reused tokens": (
            counters["reused_prompt_tokens"],
            samples["ninfer:prefix_cache_hits_total"],
            sum(result["prefix_cache_hit_tokens"] or 0 for result in done),
        ),
        "computed tokens": (
            counters["computed_prefill_tokens"],
            None,
            sum(result["computed_prefill_tokens"] or 0 for result in done),
        ),
    }
    return [
        f"{name}: /stats, /metrics and the log say {told}"
        for name, told in accounts.items()
        if len({value for value in told if value is not None}) > 1
    ]


def terminals(events: list[Event]) -> list[str]:
    """Each started request has one terminal, and lines fit the schema."""
    started = [event["request_id"] for event in events if event["event"] == "request_start"]
    ended = [event["request_id"] for event in events if event["event"] in ("request_done", "request_error")]
    problems = []
    if sorted(started) != sorted(ended):
        problems.append(f"{len(started)} requests started, {len(ended)} ended")
    if len(set(started)) != len(started):
        problems.append("a request number was given twice")
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    for event in events[:: 1 + len(events) // MAX_VALIDATED]:
        for error in validator.iter_errors(event):
            problems.append(f"{event['event']}: {error.message}")
    return problems[:10]


def read_log(log: Path) -> list[Event]:
    with log.open() as lines:
        return [json.loads(line) for line in lines]
