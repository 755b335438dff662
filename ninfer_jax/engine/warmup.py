"""Ahead-of-time compilation of every program of the ladder, before the engine is ready.

Programs are traced one after another (tracing holds the interpreter) and compiled in threads, through
jax's persistent compilation cache, so a second start only reads them. The runner calls the compiled
objects directly: it cannot trace, hash statics or compile by accident.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias, cast

import jax
import numpy as np

from ninfer_jax.artifact.assemble import no_progress
from ninfer_jax.engine import programs
from ninfer_jax.engine.programs import BindInputs, DecodeInputs, PrefillInputs, ProgramSpec
from ninfer_jax.engine.shapes import PROGRAMS, ShapeLadder
from ninfer_jax.engine.state import EngineState, LaneTable
from ninfer_jax.kernels.cpu import kernels_together
from ninfer_jax.models.base import Weights

Program: TypeAlias = Callable[..., Any]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with (programs ready, programs in all), first with none ready, on the thread that warms up."""

GPU_OPTIONS: Mapping[str, Any] = {"xla_disable_hlo_passes": "rematerialization"}
"""XLA takes 80% of a GPU for its limit, whatever the allocator was given. Where weights fill more than that,
it computes values twice to save memory that nobody lacks."""


@dataclass(frozen=True, slots=True)
class CompiledPrograms:
    """``decode`` by batch and ``prefill`` by bucket; the statics are bound, the state is donated.
    ``copy_image`` is None where there is no state slot beside those of the lanes."""

    decode: Mapping[int, Program]
    prefill: Mapping[int, Program]
    bind_lane: Program
    copy_image: Program | None

    @property
    def temporaries(self) -> int:
        """Bytes that the hungriest of them allocates while it runs."""
        sized = (*self.decode.values(), *self.prefill.values(), self.bind_lane)
        reports = (cast(jax.stages.Compiled, program).memory_analysis() for program in sized)
        return max(0 if report is None else report.temp_size_in_bytes for report in reports)


def compile_programs(
    spec: ProgramSpec,
    weights: Weights,
    state: EngineState,
    table: LaneTable,
    ladder: ShapeLadder,
    progress: Progress | None = None,
    max_workers: int | None = None,
) -> CompiledPrograms:
    """Compile the whole ladder for these arrays (only their shapes, types and devices matter)."""
    options = GPU_OPTIONS if jax.default_backend() == "gpu" else {}
    num_programs = 1 + has_checkpoints(state) + len(ladder.decode_batches) + len(ladder.prefill_buckets)
    futures: dict[tuple[str, int], Future[Program]] = {}

    def tell() -> None:
        (progress or no_progress)(sum(future.done() for future in futures.values()), num_programs)

    with ThreadPoolExecutor(max_workers or os.cpu_count() or 1, "compile") as pool:
        tell()
        traced = lower_programs(spec, weights, state, table, ladder)
        with kernels_together():
            first = next(traced)
        for key, lowered in chain((first,), traced):
            futures[key] = pool.submit(lowered.compile, compiler_options=dict(options))
            tell()
        for _ in as_completed(futures.values()):
            tell()
    done = {key: future.result() for key, future in futures.items()}
    return CompiledPrograms(
        decode={size: program for (name, size), program in done.items() if name == "decode"},
        prefill={size: program for (name, size), program in done.items() if name == "prefill"},
        bind_lane=done["bind_lane", 0],
        copy_image=done.get(("copy_image", 0)),
    )


def has_checkpoints(state: EngineState) -> bool:
    """Whether there are more state images than lanes."""
    return int(state.model.hidden.shape[0]) > int(state.counts.shape[0])


def lower_programs(
    spec: ProgramSpec,
    weights: Weights,
    state: EngineState,
    table: LaneTable,
    ladder: ShapeLadder,
    names: Collection[str] = PROGRAMS,
) -> Iterator[tuple[tuple[str, int], jax.stages.Lowered]]:
    """Those of these ``names``, largest first: they take longest to compile."""
    for bucket in reversed(ladder.prefill_buckets) if "prefill" in names else ():
        positions = ((0,),) * spec.config.rope_axes
        inputs = PrefillInputs.padded(bucket, 0, 0, (0,), positions)
        yield ("prefill", bucket), programs.prefill_chunk.lower(spec, weights, state, table, inputs)
    for batch in reversed(ladder.decode_batches) if "decode" in names else ():
        decode_inputs = DecodeInputs(*np.zeros((3, batch), np.int32))
        yield ("decode", batch), programs.decode_round.lower(spec, weights, state, table, decode_inputs)
    zero = np.int32(0)
    if "bind_lane" in names:
        yield ("bind_lane", 0), programs.bind_lane.lower(state, BindInputs.made(0, 0))
    if "copy_image" in names and has_checkpoints(state):
        yield ("copy_image", 0), programs.copy_image.lower(state, zero, zero)
