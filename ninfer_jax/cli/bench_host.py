"""What the host costs: its phases in a decode round of eight rows, alone and under eight HTTP streams."""

import functools
import itertools
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ninfer_jax.cli.bench_http import HttpTarget
from ninfer_jax.cli.bench_measures import decode_window
from ninfer_jax.cli.bench_rounds import RoundReading, open_recorded_engine
from ninfer_jax.cli.bench_server import ServerProcess
from ninfer_jax.cli.bench_target import Job, Target
from ninfer_jax.cli.bench_worker import WorkerTarget
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.accounting import HOST_PHASES, NANOSECONDS, ClockTotals, Phase, WorkClass

ROWS = 8
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 256
LOG_INTERVAL_MS = 20
PHASES = tuple(phase.name.lower() for phase in HOST_PHASES)
Progress = Callable[[str], None]
Round = Mapping[str, float]
"""Seconds of one decode round by host phase, with ``total`` and ``device_wait``."""


def host(
    path: Path, config: EngineConfig, flags: Sequence[str], repeats: int, progress: Progress
) -> tuple[list[Table], dict[str, Any]]:
    """Engine and server take turns, ``repeats`` times each; ``flags`` start the server."""
    seeds = itertools.count(1)
    speeds: dict[str, list[float]] = {"engine": [], "http": []}
    progress("starting the engine")
    engine = WorkerTarget("engine", functools.partial(open_recorded_engine, path, config))
    try:
        with tempfile.TemporaryDirectory(prefix="ninfer-bench-") as folder:
            log = Path(folder) / "log.jsonl"
            logging = ["--request-log-jsonl", str(log), "--log-stats-interval-ms", str(LOG_INTERVAL_MS)]
            progress("starting the server")
            with ServerProcess([*flags, *logging]) as server:
                targets: dict[str, Target] = {"engine": engine, "http": HttpTarget("http", server.url)}
                for repeat in range(repeats):
                    for name in list(targets)[:: 1 if repeat % 2 else -1]:
                        progress(f"{repeat + 1}/{repeats}: {name}")
                        speeds[name].append(rounds_per_second(targets[name], seeds))
            rounds = {"engine": full_rounds(engine.call("readings")), "http": rounds_of_log(log)}
    finally:
        engine.close()
    phases = {name: median_round(samples) for name, samples in rounds.items()}
    ratio = statistics.median(a / b for a, b in zip(speeds["http"], speeds["engine"], strict=True))
    record = {
        "model": path.name,
        "weights": config.weights,
        "repeats": repeats,
        "host_seconds_per_round": phases,
        "rounds": {name: len(samples) for name, samples in rounds.items()},
        "rounds_per_second": speeds,
        "http_to_engine": ratio,
    }
    return [_table(phases, speeds, ratio)], record


def rounds_per_second(target: Target, seeds: "itertools.count[int]") -> float:
    """Decode rounds of ``ROWS`` rows, from the tokens that arrive while all of them decode."""
    jobs = [Job(PROMPT_TOKENS, OUTPUT_TOKENS, next(seeds)) for _ in range(ROWS)]
    tokens, seconds = decode_window(target.run(jobs))
    return tokens / ROWS / seconds


def full_rounds(readings: Sequence[RoundReading]) -> list[Round]:
    """What each round of ``ROWS`` rows cost that another one followed at once."""
    return [
        _difference(before.totals, after.totals)
        for before, after in itertools.pairwise(readings)
        if before.num_rows == after.num_rows == ROWS
    ]


def rounds_of_log(log: Path) -> list[Round]:
    """A mean round for each interval of a request log in which there were full decode rounds only."""
    rounds: list[Round] = []
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["event"] != "throughput" or event["tokens"]["computed_prefill_tokens"]:
            continue
        decode, work = event["decode"], event["host_work"]
        if decode["average_size"] == ROWS:
            seconds = {**work["elapsed_seconds"], "device_wait": work["device_wait_seconds"]}
            rounds.append({name: value / decode["rounds"] for name, value in seconds.items()})
    return rounds


def median_round(rounds: Sequence[Round]) -> dict[str, float]:
    """The median of each figure by itself, so the phases need not add up to ``total`` exactly."""
    names = (*PHASES, "total", "device_wait")
    return {name: statistics.median(sample[name] for sample in rounds) for name in names} if rounds else {}


def _difference(before: ClockTotals, after: ClockTotals) -> Round:
    spent = [
        (new - old) * NANOSECONDS
        for old, new in zip(before.work[WorkClass.DECODE], after.work[WorkClass.DECODE], strict=True)
    ]
    phases = {phase.name.lower(): spent[phase] for phase in HOST_PHASES}
    return {**phases, "total": sum(phases.values()), "device_wait": spent[Phase.DEVICE_WAIT]}


def _table(phases: Mapping[str, Round], speeds: Mapping[str, Sequence[float]], ratio: float) -> Table:
    table = Table(title=f"a decode round of {ROWS} rows, medians")
    table.add_column("", justify="left")
    for name in ("engine alone, µs", f"{ROWS} HTTP streams, µs"):
        table.add_column(name, justify="right")
    for name in (*PHASES, "total", "device_wait"):
        cells = [f"{1e6 * phases[target][name]:,.0f}" if phases[target] else "-" for target in speeds]
        label = {"total": "host, all phases", "device_wait": "device wait"}.get(name, name)
        table.add_row(label, *cells, end_section=name == PHASES[-1])
    table.add_section()
    medians = [f"{statistics.median(values):,.1f}" for values in speeds.values()]
    table.add_row("rounds a second", *medians)
    table.add_row("HTTP to engine", "", f"{ratio:.3f}")
    return table
