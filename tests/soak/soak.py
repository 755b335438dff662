"""The soak itself: load with chaos, then an account of what the server still holds and what it said.

All that is judged is exact, except the slope of resident memory: an allocator's steps say something only
over ``SLOPE_MINUTES``. A short soak is as long as a number of answers takes, on any machine.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.soak import books
from tests.soak.server import MIB, Reading, WatchedServer
from tests.soak.workload import Clients, lone_answers, new_client

NUM_CLIENTS = 20
NUM_CASES = 60
WARM_UP_SHARE = 1 / 3
MAX_WARM_UP_SECONDS = 600.0
SAMPLE_SECONDS = 0.5
SLOPE_MINUTES = 10.0
MAX_SLOPE = 1.0
"""MiB a minute."""
MAX_BLOCKS = 0.5
MAX_OBJECTS = 0.1
"""How many more of them, of one type, may be held, for each answer. Caches and free lists have bounds; what
leaks, leaks with each request or with each that is cut or refused, and there are as many of these."""
SURE = ("equal", "cut", "stopped by a string")
BY_TIMING = ("given up", "request_queue_timeout")
"""Outcomes that a soak of ``SLOPE_MINUTES`` must have seen."""


@dataclass(frozen=True, slots=True)
class Length:
    """How long clients go on, warm-up included: ``seconds``, or until so many ``answers`` were checked."""

    seconds: float | None = None
    answers: int | None = None

    def phases(self, clients: Clients) -> tuple[Callable[[], bool], Callable[[], bool]]:
        """Whether the warm-up, and all of it, are over. Starts now."""
        if self.answers is not None:
            total = self.answers
            return lambda: clients.num_checked >= WARM_UP_SHARE * total, lambda: clients.num_checked >= total
        assert self.seconds is not None
        start, seconds = time.monotonic(), self.seconds
        warm_up = min(WARM_UP_SHARE * seconds, MAX_WARM_UP_SECONDS)
        return lambda: time.monotonic() >= start + warm_up, lambda: time.monotonic() >= start + seconds


@dataclass(slots=True)
class Report:
    """``problems`` is empty after a good soak. Sizes in MiB, slopes in MiB a minute."""

    minutes: float
    """After the warm-up."""
    answers: int
    """Checked after the warm-up."""
    outcomes: dict[str, int]
    warm: Reading
    after: Reading
    slope: float
    compilations_at_start: int = 0
    compilations_while_serving: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_long(self) -> bool:
        return self.minutes >= SLOPE_MINUTES

    def lines(self) -> list[str]:
        warm, after = self.warm, self.after
        outcomes = [f"{number} {name}" for name, number in sorted(self.outcomes.items())]
        growth = (after.resident_bytes - warm.resident_bytes) / MIB
        return [
            f"{self.minutes:.1f} min and {self.answers} answers after warm-up; in all " + ", ".join(outcomes),
            f"resident {warm.resident_bytes / MIB:.1f} -> {after.resident_bytes / MIB:.1f} MiB "
            f"({growth:+.1f}), slope {self.slope:+.2f} MiB/min" + ("" if self.is_long else ", not judged"),
            f"Python blocks {warm.blocks} -> {after.blocks}, arrays {warm.arrays} -> {after.arrays}",
            f"descriptors {warm.descriptors} -> {after.descriptors}, "
            f"threads {warm.threads} -> {after.threads}",
            f"compilations {self.compilations_at_start} at start-up, "
            f"{self.compilations_while_serving} while serving",
            *(f"PROBLEM: {problem}" for problem in self.problems),
        ]


def soak(folder: Path, length: Length, *, seed: int = 0) -> Report:
    """Run for ``length``, a third of it to warm up, ten minutes at most."""
    with WatchedServer(folder) as server:
        at_start = server.num_compilations()
        report = asyncio.run(_load(server, length, seed))
        report.compilations_at_start = at_start
        report.compilations_while_serving = server.num_compilations() - at_start
        stats, metrics = server.stats(), server.metrics()
        code = server.stop()
        report.problems += server.complaints()
    log = books.read_log(server.log)  # complete once the server has ended
    report.problems += books.held(stats) + books.accounts(stats, metrics, log) + books.terminals(log)
    report.problems += _grown(report) + _unseen(report)
    if code != 0:
        report.problems.append(f"SIGTERM ended it with {code}")
    if at_start == 0:
        report.problems.append("compilations are not seen at all")
    if report.compilations_while_serving:
        report.problems.append("something was compiled while serving")
    return report


async def _load(server: WatchedServer, length: Length, seed: int) -> Report:
    async with new_client(server.url) as client:
        answers = await lone_answers(client, NUM_CASES, seed)
    clients = Clients(server.url, answers, seed + 1)
    is_warm, is_over = length.phases(clients)
    await clients.run(NUM_CLIENTS, is_warm)
    problems = server.rest()
    warm, num_warm, since = server.reading(), clients.num_checked, time.monotonic()
    sampler = asyncio.create_task(_sample(server))
    await clients.run(NUM_CLIENTS, is_over)
    minutes = (time.monotonic() - since) / 60
    sampler.cancel()
    samples = await sampler
    problems += server.rest()
    return Report(
        minutes,
        clients.num_checked - num_warm,
        dict(clients.counts),
        warm,
        server.reading(),
        slope(samples),
        problems=problems + clients.wrong[:10],
    )


async def _sample(server: WatchedServer) -> list[tuple[float, float]]:
    """(minutes, MiB) until cancelled."""
    samples = []
    try:
        while True:
            samples.append((time.monotonic() / 60, server.resident_bytes() / MIB))
            await asyncio.sleep(SAMPLE_SECONDS)
    except asyncio.CancelledError:
        return samples


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """Least squares: MiB a minute; 0 for less than two samples."""
    if len(samples) < 2:
        return 0.0
    minutes, sizes = np.array(samples).T
    return float(np.polyfit(minutes - minutes[0], sizes, 1)[0])


def _grown(report: Report) -> list[str]:
    """What the server holds more of than it did when it was warm."""
    warm, after = report.warm, report.after
    problems = [
        f"{name} leak"
        for name in ("descriptors", "threads", "arrays")
        if getattr(after, name) > getattr(warm, name)
    ]
    if (grown := after.blocks - warm.blocks) > MAX_BLOCKS * report.answers:
        problems.append(f"{grown} more blocks are held after {report.answers} answers")
    for name, number in after.types.items():
        if (grown := number - warm.types.get(name, 0)) > MAX_OBJECTS * report.answers:
            problems.append(f"{grown} more objects of type {name} live after {report.answers} answers")
    if report.is_long and report.slope > MAX_SLOPE:
        problems.append(f"resident memory grows by {report.slope:.1f} MiB a minute")
    return problems


def _unseen(report: Report) -> list[str]:
    """Outcomes without which the soak would have shown less than it says."""
    names = SURE + BY_TIMING if report.is_long else SURE
    return [f"nothing was {name}" for name in names if not report.outcomes.get(name)]
