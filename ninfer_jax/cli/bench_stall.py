"""How long a long prompt makes running streams wait: their gaps between tokens while it prefills."""

import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from ninfer_jax.cli.bench_rounds import RoundReading, open_recorded_engine
from ninfer_jax.cli.bench_target import Job
from ninfer_jax.cli.bench_worker import WorkerTarget
from ninfer_jax.config import EngineConfig, WeightFormat
from ninfer_jax.engine.accounting import WorkClass

STREAMS = 7
STREAM_PROMPT = 32
LONG_PROMPT = 6000
MAX_CONTEXT = 6144
CHUNKS = (256, 1024)
Progress = Callable[[str], None]


def stall(
    path: Path, weights: WeightFormat | None, repeats: int, progress: Progress
) -> tuple[list[Table], dict[str, Any]]:
    """For each prefill chunk of ``CHUNKS``: ``STREAMS`` running rows, then one prompt of ``LONG_PROMPT``."""
    rows = []
    for chunk in CHUNKS:
        progress(f"starting an engine with chunks of {chunk}")
        config = EngineConfig(
            max_context=MAX_CONTEXT,
            kv_capacity=2 * MAX_CONTEXT,
            max_concurrency=STREAMS + 1,
            prefill_chunk=chunk,
            weights=weights,
        )
        target = WorkerTarget("engine", functools.partial(open_recorded_engine, path, config))
        try:
            rows.append(measure_chunk(target, chunk, repeats, progress))
        finally:
            target.close()
    record = {"model": path.name, "weights": weights, "repeats": repeats, "stall": rows}
    return [_table(rows)], record


def measure_chunk(target: WorkerTarget, chunk: int, repeats: int, progress: Progress) -> dict[str, Any]:
    """The gaps of running streams while the prompt prefills, beside the chunk and the round in each."""
    seeds = itertools.count(1)
    num_chunks = -(-LONG_PROMPT // chunk)
    output = 2 * num_chunks + 2 * STREAMS + 8  # they outlast the prompt, which lets them go every round
    gaps: list[Gap] = []
    for repeat in range(repeats):
        progress(f"chunk {chunk}: {repeat + 1}/{repeats}")
        jobs = [Job(STREAM_PROMPT, output, next(seeds)) for _ in range(STREAMS)]
        *running, long = target.run([*jobs, Job(LONG_PROMPT, 1, next(seeds))])
        begin = max(trace.times[0] for trace in running)
        gaps += gaps_between(target.call("readings"), begin, long.times[0])
    return summary(chunk, gaps)


class Gap(NamedTuple):
    """Between two neighbouring rounds of all streams; each of them sees it. Seconds."""

    seconds: float
    num_chunks: int
    chunk: float
    """All prefill units in it."""
    round: float
    """The round at its end, whole: its tokens are told before the boundary after it is done."""


def gaps_between(readings: Sequence[RoundReading], begin: float, end: float) -> list[Gap]:
    """Those with rounds of all streams that began within the span; ``readings`` go on after it."""
    return [
        Gap(
            second.at - first.at,
            second.prefill_units - first.prefill_units,
            second.seconds(WorkClass.PREFILL) - first.seconds(WorkClass.PREFILL),
            third.seconds(WorkClass.DECODE) - second.seconds(WorkClass.DECODE),
        )
        for first, second, third in zip(readings, readings[1:], readings[2:], strict=False)
        if begin <= first.at < end and first.num_rows == second.num_rows == STREAMS
    ]


def summary(chunk: int, gaps: Sequence[Gap]) -> dict[str, Any]:
    """Chunks get longer with the context before them, so a gap's bound is the chunk and round in it."""
    seconds = [gap.seconds for gap in gaps]
    bounds = [gap.chunk + gap.round for gap in gaps]
    return {
        "prefill_chunk": chunk,
        "gaps": len(gaps),
        "chunks": sum(gap.num_chunks for gap in gaps),
        "chunks_per_gap_max": max(gap.num_chunks for gap in gaps),
        "gap_p50_seconds": statistics.median(seconds),
        "gap_p95_seconds": _p95(seconds),
        "gap_max_seconds": max(seconds),
        "chunk_p95_seconds": _p95([gap.chunk for gap in gaps]),
        "round_p95_seconds": _p95([gap.round for gap in gaps]),
        "bound_p95_seconds": _p95(bounds),
        "gap_to_bound_p95": _p95([gap / bound for gap, bound in zip(seconds, bounds, strict=True)]),
    }


def _p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=f"gaps of {STREAMS} streams while {LONG_PROMPT:,} tokens prefill, ms")
    columns = {
        "gap p50": "gap_p50_seconds",
        "gap p95": "gap_p95_seconds",
        "gap max": "gap_max_seconds",
        "chunk p95": "chunk_p95_seconds",
        "round p95": "round_p95_seconds",
        "chunk + round p95": "bound_p95_seconds",
    }
    for name in ("chunk", *columns, "gap / its bound, p95", "chunks a gap, max"):
        table.add_column(name, justify="right")
    for row in rows:
        cells = [f"{1000 * row[key]:.1f}" for key in columns.values()]
        ratio, chunks = f"{row['gap_to_bound_p95']:.2f}", str(row["chunks_per_gap_max"])
        table.add_row(str(row["prefill_chunk"]), *cells, ratio, chunks)
    return table
