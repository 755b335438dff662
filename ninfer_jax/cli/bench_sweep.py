"""How decode time grows with the context, what reading the KV bytes explains of it, and whether the
pool's capacity costs anything."""

import functools
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ninfer_jax.cli.bench_engine import open_engine
from ninfer_jax.cli.bench_measures import decode_window
from ninfer_jax.cli.bench_target import Job, Target
from ninfer_jax.cli.bench_worker import WorkerTarget
from ninfer_jax.config import EngineConfig, WeightFormat

CONTEXTS = (100, 300, 700, 1100, 1500, 1900)
OUTPUT_TOKENS = 32
MAX_CONTEXT = 2048
CAPACITY_FACTOR = 10
BANDWIDTH_BYTES = 256 * 2**20
Progress = Callable[[str], None]


def sweep(
    path: Path, weights: WeightFormat | None, repeats: int, progress: Progress
) -> tuple[list[Table], dict[str, Any]]:
    """Decode at B=1 over ``CONTEXTS``, on a pool of one context and on one ten times larger."""
    targets: dict[int, WorkerTarget] = {}
    try:
        for factor in (1, CAPACITY_FACTOR):
            capacity = MAX_CONTEXT * factor
            progress(f"starting an engine with {capacity} KV tokens")
            config = EngineConfig(max_context=MAX_CONTEXT, kv_capacity=capacity, weights=weights)
            name = f"{capacity} KV tokens"
            targets[capacity] = WorkerTarget(name, functools.partial(open_engine, path, config, name))
        kv_bytes: int = targets[MAX_CONTEXT].call("kv_bytes_per_token")
        bandwidths, rounds = _measure(targets, repeats, progress)
    finally:
        for target in targets.values():
            target.close()
    bandwidth = statistics.median(bandwidths)
    medians = {
        capacity: {context: statistics.median(values) for context, values in by_context.items()}
        for capacity, by_context in rounds.items()
    }
    record = summary(medians, kv_bytes, bandwidth)
    return [_table(medians, record)], {"model": path.name, "weights": weights, "repeats": repeats, **record}


def _measure(
    targets: Mapping[int, Target], repeats: int, progress: Progress
) -> tuple[list[float], dict[int, dict[int, list[float]]]]:
    """(bytes a second, one a repeat; seconds a round by capacity and context), interleaved."""
    seeds = itertools.count(1)
    bandwidths: list[float] = []
    rounds: dict[int, dict[int, list[float]]] = {
        capacity: {context: [] for context in CONTEXTS} for capacity in targets
    }
    for target in targets.values():
        target.run([Job(CONTEXTS[0], OUTPUT_TOKENS, next(seeds))])
    for repeat in range(repeats):
        bandwidths.append(read_bandwidth())
        for context, (capacity, target) in itertools.product(CONTEXTS, targets.items()):
            progress(f"{repeat + 1}/{repeats}: context {context}, {target.name}")
            job = Job(context - OUTPUT_TOKENS // 2, OUTPUT_TOKENS, next(seeds))
            tokens, seconds = decode_window(target.run([job]))
            rounds[capacity][context].append(seconds / tokens)
    return bandwidths, rounds


def summary(medians: dict[int, dict[int, float]], kv_bytes: int, bandwidth: float) -> dict[str, Any]:
    """What grew, what reading the bytes explains, and what ten times the capacity cost."""
    small, large = (medians[capacity] for capacity in sorted(medians))
    first, last = CONTEXTS[0], CONTEXTS[-1]
    explained = (last - first) * kv_bytes / bandwidth
    growth = small[last] - small[first]
    return {
        "kv_bytes_per_token": kv_bytes,
        "read_bandwidth_bytes_per_second": bandwidth,
        "round_seconds": {str(capacity): values for capacity, values in medians.items()},
        "growth_seconds": growth,
        "growth_explained_by_bytes_seconds": explained,
        "round_ratio": small[last] / small[first],
        "round_ratio_explained_by_bytes": (small[first] + explained) / small[first],
        "capacity_ratio": statistics.median(large[context] / small[context] for context in CONTEXTS),
    }


def _table(medians: dict[int, dict[int, float]], record: dict[str, Any]) -> Table:
    bandwidth = record["read_bandwidth_bytes_per_second"]
    kv_bytes = record["kv_bytes_per_token"]
    caption = (
        f"{kv_bytes:,} KV bytes a token, read at {bandwidth / 1e9:.1f} GB/s; from {CONTEXTS[0]} to "
        f"{CONTEXTS[-1]} tokens a round grows {1000 * record['growth_seconds']:.2f} ms, reading the bytes "
        f"explains {1000 * record['growth_explained_by_bytes_seconds']:.2f} ms"
    )
    table = Table(title="decode, ms a token at B=1", caption=caption)
    table.add_column("context", justify="right")
    for capacity in medians:
        table.add_column(f"pool of {capacity:,}", justify="right")
    table.add_column("KV bytes at bandwidth", justify="right")
    for context in CONTEXTS:
        times = [f"{1000 * values[context]:.2f}" for values in medians.values()]
        table.add_row(str(context), *times, f"{1000 * context * kv_bytes / bandwidth:.2f}")
    return table


def read_bandwidth(num_threads: int | None = None) -> float:
    """Bytes a second that all cores read together from memory, the best of three passes."""
    threads = num_threads or len(os.sched_getaffinity(0))
    parts = np.array_split(np.ones(BANDWIDTH_BYTES // 4, np.float32), threads)

    def one_pass() -> float:
        workers = [threading.Thread(target=np.dot, args=(part, part)) for part in parts]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return BANDWIDTH_BYTES / (time.perf_counter() - started)

    return max(one_pass() for _ in range(3))
