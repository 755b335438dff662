"""``plan --compile``: the programs of a plan, compiled one after another, and what stands in them."""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ninfer_jax.cli.driver_noise import without_driver_noise
from ninfer_jax.engine.gpu_targets import GpuTarget, compile_only_sharding
from ninfer_jax.engine.shapes import PROGRAMS
from ninfer_jax.observe.sizes import binary_size

if TYPE_CHECKING:
    from ninfer_jax.engine.aot import ProgramReport
    from ninfer_jax.engine.ledger import Deployment, Ledger
    from ninfer_jax.models.base import Architecture

COLUMNS = {
    "program": -14,
    "arguments": 11,
    "in place": 11,
    "temporaries": 12,
    "kernels": 8,
    "large moves": 12,
    "traced": 8,
    "compiled": 9,
}
"""Widths, of numbers to the right: a row is printed when its program is done, before the next is known."""


def program_names(text: str) -> tuple[str, ...]:
    """A comma-separated choice of :data:`PROGRAMS`, for argparse."""
    chosen = tuple(name.strip() for name in text.split(","))
    for name in chosen:
        if name not in PROGRAMS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(PROGRAMS)}")
    return chosen


def compile_programs(
    architecture: "Architecture", deployment: "Deployment", target: GpuTarget, names: Sequence[str]
) -> "Iterator[ProgramReport]":
    from ninfer_jax.engine.aot import compile_for
    from ninfer_jax.engine.programs import ProgramSpec
    from ninfer_jax.engine.sampling import SamplingPipeline

    sampling = SamplingPipeline(cap=deployment.config.top_k_cap)
    spec = ProgramSpec(architecture, deployment.model, sampling)
    with without_driver_noise():
        sharding = compile_only_sharding(target)
    return compile_for(spec, deployment, sharding, names)


def heading() -> str:
    return _line(list(COLUMNS))


def program_lines(report: "ProgramReport") -> list[str]:
    """The row of one program, and a line for each large move in it."""
    cells = [
        f"{report.name} {report.size or ''}".rstrip(),
        binary_size(report.arguments),
        binary_size(report.aliased),
        binary_size(report.temporaries),
        f"{report.kernels:,}",
        "" if report.name == "prefill" else str(len(report.big_moves)),
        f"{report.lower_seconds:.1f} s",
        f"{report.compile_seconds:.1f} s",
    ]
    moves = (f"    {move.operation} {move.dtype}{list(move.shape)}" for move in report.big_moves)
    return [_line(cells), *moves]


def closing_lines(ledger: "Ledger", reports: "Sequence[ProgramReport]") -> list[str]:
    """Whether the pools are updated in place and, where a program with weights was compiled, how far the
    ledger is from it."""
    held = sum(ledger.kv_pools.values()) + ledger.state
    copied = [f"{report.name} {report.size or ''}".rstrip() for report in reports if report.aliased < held]
    verdict = f"not in place in {', '.join(copied)}" if copied else "in place in every program"
    lines = [f"  pools and state of {binary_size(held)}: {verdict}"]
    if any(report.name in ("prefill", "decode") for report in reports):
        predicted, compiled = ledger.total, compiled_total(ledger, reports)
        lines.append(
            f"  predicted {binary_size(predicted)}, compiled {binary_size(compiled)} "
            f"({100 * (compiled - predicted) / predicted:+.1f}%)"
        )
    return lines


def compiled_total(ledger: "Ledger", reports: "Sequence[ProgramReport]") -> int:
    """Memory at the peak of the hungriest program: its arguments, results not in place, temporaries."""
    return ledger.runtime + max(r.arguments + r.outputs - r.aliased + r.temporaries for r in reports)


def _line(cells: Sequence[str]) -> str:
    widths = COLUMNS.values()
    return "  " + "".join(
        cell.ljust(-width) if width < 0 else cell.rjust(width)
        for cell, width in zip(cells, widths, strict=True)
    )
