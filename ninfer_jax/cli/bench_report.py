"""The benchmark's answer: a table for people, then one JSON line for programs, last on stdout."""

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ninfer_jax import __version__
from ninfer_jax.cli.bench_measures import Results

SCHEMA = "ninfer_bench/1"
MEBIBYTE = 2**20


def machine() -> dict[str, Any]:
    """What the numbers depend on: processor, cores this process may use, memory, versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEBIBYTE,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in ("jax", "llama-cpp-python", "transformers", "torch")},
    }


def results_table(results: Results, baseline: str, memory: Mapping[str, int | None]) -> Table:
    """A row a metric; a column a target, and for every target but ``baseline`` how many times faster
    ``baseline`` is."""
    others = [name for name in results.samples if name != baseline]
    table = Table(title="medians")
    table.add_column("")
    for name in results.samples:
        table.add_column(name, justify="right")
    for name in others:
        table.add_column(f"{baseline} / {name}", justify="right")
    for metric in results.metrics:
        cells = [_number(results.median(name, metric)) for name in results.samples]
        cells += [_ratio(results.ratio(baseline, name, metric)) for name in others]
        table.add_row(f"{metric.name} ({metric.unit})", *cells)
    if any(memory.values()):
        cells = [_number(value / MEBIBYTE if value else None) for value in memory.values()]
        table.add_row("peak memory (MiB)", *cells, *["" for _ in others])
    return table


def results_json(results: Results, baseline: str, memory: Mapping[str, int | None]) -> dict[str, Any]:
    """The same figures, and every sample."""
    others = [name for name in results.samples if name != baseline]
    return {
        "medians": _nested(results, list(results.samples), results.median),
        "ratios": _nested(results, others, lambda name, metric: results.ratio(baseline, name, metric)),
        "units": {metric.name: metric.unit for metric in results.metrics},
        "samples": {
            name: {metric.name: values for metric, values in samples.items()}
            for name, samples in results.samples.items()
        },
        "peak_memory_bytes": dict(memory),
    }


def print_report(tables: Sequence[Table], record: Mapping[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    for table in tables:
        console.print(table)
    line = {"schema": SCHEMA, "version": __version__, "machine": machine(), **record}
    print(json.dumps(line), flush=True)


def _nested(results: Results, names: Sequence[str], value: Any) -> dict[str, dict[str, float]]:
    return {
        name: {
            metric.name: number for metric in results.metrics if (number := value(name, metric)) is not None
        }
        for name in names
    }


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
