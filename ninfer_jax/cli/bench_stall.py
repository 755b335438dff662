"""How long a long prompt makes running streams wait: their gaps between tokens while it prefills."""

import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ninfer_jax.cli.bench_engine import open_engine
from ninfer_jax.cli.bench_measures import decode_window, rounds_spent
from ninfer_jax.cli.bench_target import Job, Target, Trace
from ninfer_jax.cli.bench_worker import WorkerTarget
from ninfer_jax.config import EngineConfig, WeightFormat

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
        target = WorkerTarget("engine", functools.partial(open_engine, path, config, "engine"))
        try:
            rows.append(measure_chunk(target, chunk, repeats, progress))
        finally:
            target.close()
    record = {"model": path.name, "weights": weights, "repeats": repeats, "stall": rows}
    return [_table(rows)], record


def measure_chunk(target: Target, chunk: int, repeats: int, progress: Progress) -> dict[str, Any]:
    """Seconds: the gaps of running streams while the prompt prefills, beside a chunk and a round."""
    seeds = itertools.count(1)
    num_chunks = -(-LONG_PROMPT // chunk)
    gaps: list[float] = []
    chunks: list[float] = []
    rounds: list[float] = []
    for repeat in range(repeats):
        progress(f"chunk {chunk}: {repeat + 1}/{repeats}")
        output = 2 * num_chunks + 2 * STREAMS + 8  # they outlast the prompt, which lets them go every round
        streams = [Job(STREAM_PROMPT, output, next(seeds)) for _ in range(STREAMS)]
        tokens, seconds = decode_window(target.run(streams))
        rounds.append(STREAMS * seconds / tokens)
        streams = [Job(STREAM_PROMPT, output, next(seeds)) for _ in range(STREAMS)]
        *running, long = target.run([*streams, Job(LONG_PROMPT, 1, next(seeds))])
        begin = max(trace.times[0] for trace in running)
        gaps += gaps_between(running, begin, long.times[0])
        chunks.append((long.times[0] - begin) / num_chunks - rounds[-1])
    chunk_seconds, round_seconds = statistics.median(chunks), statistics.median(rounds)
    return {
        "prefill_chunk": chunk,
        "chunk_seconds": chunk_seconds,
        "round_seconds": round_seconds,
        "gap_p50_seconds": statistics.median(gaps),
        "gap_p95_seconds": statistics.quantiles(gaps, n=20)[-1],
        "gap_max_seconds": max(gaps),
        "bound_seconds": chunk_seconds + round_seconds,
    }


def gaps_between(traces: Sequence[Trace], begin: float, end: float) -> list[float]:
    """Gaps of all streams that began within the span."""
    return [
        gap
        for trace in traces
        for earlier, gap in zip(trace.times, rounds_spent(trace), strict=False)
        if begin <= earlier < end
    ]


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=f"gaps of {STREAMS} streams while {LONG_PROMPT:,} tokens prefill, ms")
    columns = {
        "chunk": "prefill_chunk",
        "gap p50": "gap_p50_seconds",
        "gap p95": "gap_p95_seconds",
        "gap max": "gap_max_seconds",
        "one chunk": "chunk_seconds",
        "one round": "round_seconds",
        "chunk + round": "bound_seconds",
    }
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        cells = (f"{1000 * row[key]:.1f}" for key in list(columns.values())[1:])
        table.add_row(str(row["prefill_chunk"]), *cells)
    return table
