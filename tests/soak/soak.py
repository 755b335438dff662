"""The soak itself: load with chaos, then an account of what the server still holds and what it said."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from tests.soak.server import MIB, Reading, WatchedServer
from tests.soak.workload import Clients, lone_answers, new_client

NUM_CLIENTS = 20
NUM_CASES = 60
SAMPLE_SECONDS = 0.5
IDLE_SECONDS = 20.0
MAX_VALIDATED = 2000
MAX_SLOPE = 1.0
"""MiB a minute."""
STEP_MINUTES = 8.0
"""A heap settles in steps of a few MiB: a short soak may grow by what this many minutes may."""
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


@dataclass(slots=True)
class Report:
    """``problems`` is empty after a good soak. Sizes in MiB, slopes in MiB a minute."""

    minutes: float
    """After the warm-up."""
    outcomes: dict[str, int]
    warm: Reading
    after: Reading
    slope: float
    compilations_at_start: int = 0
    compilations_while_serving: int = 0
    problems: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        outcomes = [f"{number} {name}" for name, number in sorted(self.outcomes.items())]
        growth = (self.after.resident_bytes - self.warm.resident_bytes) / MIB
        return [
            f"{self.minutes:.1f} min after warm-up; in all " + ", ".join(outcomes),
            f"resident {self.warm.resident_bytes / MIB:.1f} -> {self.after.resident_bytes / MIB:.1f} MiB "
            f"({growth:+.1f}), slope {self.slope:+.2f} MiB/min",
            f"descriptors {self.warm.descriptors} -> {self.after.descriptors}, "
            f"threads {self.warm.threads} -> {self.after.threads}",
            f"compilations {self.compilations_at_start} at start-up, "
            f"{self.compilations_while_serving} while serving",
            *(f"PROBLEM: {problem}" for problem in self.problems),
        ]


def soak(folder: Path, seconds: float, *, seed: int = 0) -> Report:
    """Run for about ``seconds``, a third of it (ten minutes at most) to warm up."""
    with WatchedServer(folder) as server:
        at_start = server.num_compilations()
        report = asyncio.run(_load(server, seconds, seed))
        report.compilations_at_start = at_start
        report.compilations_while_serving = server.num_compilations() - at_start
        problems = report.problems
        problems += _held(server.url, report)
        problems += _accounts(server)
        problems += server.complaints()
        code = server.stop()
    if code != 0:
        problems.append(f"SIGTERM ended it with {code}")
    if at_start == 0:
        problems.append("compilations are not seen at all")
    if report.compilations_while_serving:
        problems.append("something was compiled while serving")
    if report.slope * report.minutes > MAX_SLOPE * max(report.minutes, STEP_MINUTES):
        problems.append(f"resident memory grows by {report.slope:.1f} MiB a minute")
    problems += [
        f"nothing was {name}"
        for name in ("equal", "cut", "given up", "stopped by a string", "request_queue_timeout")
        if not report.outcomes.get(name)
    ]
    problems += _terminals(server.log)
    return report


async def _load(server: WatchedServer, seconds: float, seed: int) -> Report:
    async with new_client(server.url) as client:
        answers = await lone_answers(client, NUM_CASES, seed)
    clients = Clients(server.url, answers, seed + 1)
    warm_up = min(seconds / 3, 600.0)
    await clients.run(NUM_CLIENTS, warm_up)
    await _idle(server.url)
    warm = server.reading()
    sampler = asyncio.create_task(_sample(server))
    await clients.run(NUM_CLIENTS, seconds - warm_up)
    sampler.cancel()
    samples = await sampler
    await _idle(server.url)
    return Report(
        (seconds - warm_up) / 60,
        dict(clients.counts),
        warm,
        server.reading(),
        slope(samples),
        problems=clients.wrong[:10],
    )


async def _sample(server: WatchedServer) -> list[tuple[float, float]]:
    """(minutes, MiB) until cancelled."""
    samples = []
    try:
        while True:
            samples.append((time.monotonic() / 60, server.reading().resident_bytes / MIB))
            await asyncio.sleep(SAMPLE_SECONDS)
    except asyncio.CancelledError:
        return samples


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """Least squares: MiB a minute."""
    minutes, sizes = np.array(samples).T
    return float(np.polyfit(minutes - minutes[0], sizes, 1)[0])


async def _idle(url: str) -> None:
    """Until every place has come back and connections have been noticed to be gone."""
    async with new_client(url) as client:
        deadline = time.monotonic() + IDLE_SECONDS
        while (await client.get("/stats")).json()["outstanding"] and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)


def _held(url: str, report: Report) -> list[str]:
    """What a server at rest must not hold any more."""
    stats = httpx.get(f"{url}/stats", trust_env=False).json()
    held = {name: stats["gauges"][name] for name in GAUGES_AT_REST if stats["gauges"][name]}
    problems = [f"at rest the engine holds {held}"] if held else []
    if stats["outstanding"]:
        problems.append(f"{stats['outstanding']} places have not come back")
    pages = sum(stats["gauges"][f"device_main_pages_{kind}"] for kind in ("cached", "free"))
    if pages != stats["capacity"]["main_pages"]:
        problems.append(f"{pages} of {stats['capacity']['main_pages']} pages are free or cached")
    if report.after.descriptors > report.warm.descriptors:
        problems.append("descriptors leak")
    if report.after.threads > report.warm.threads:
        problems.append("threads leak")
    return problems


def _accounts(server: WatchedServer) -> list[str]:
    """``/metrics`` must parse, and say what ``/stats`` and the request log say."""
    stats = httpx.get(f"{server.url}/stats", trust_env=False).json()
    page = httpx.get(f"{server.url}/metrics", trust_env=False).text
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if "le" not in sample.labels:
                samples[sample.name] = samples.get(sample.name, 0) + sample.value
    counters = stats["counters"]
    generated = ("first_tokens", "committed_decode_tokens", "committed_control_tokens")
    done = [event["result"] for event in read_log(server.log) if event["event"] == "request_done"]
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


def _terminals(log: Path) -> list[str]:
    """Each started request has one terminal, and lines fit the schema."""
    events = read_log(log)
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


def read_log(log: Path) -> list[dict[str, Any]]:
    with log.open() as lines:
        return [json.loads(line) for line in lines]
