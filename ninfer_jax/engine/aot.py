"""Compile every program for a device that is not here, and read what stands in the result."""

import math
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from ninfer_jax.engine.ledger import Deployment, nbytes, state_shapes, table_shapes, weight_shapes
from ninfer_jax.engine.programs import ProgramSpec
from ninfer_jax.engine.shapes import PROGRAMS, ShapeLadder
from ninfer_jax.engine.warmup import GPU_OPTIONS, lower_programs
from ninfer_jax.models.weights import spec_leaves

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?[\w.\-]+ = (\w+)\[([\d,]*)\]\S* ([\w\-]+)\(")
_CALLS = re.compile(r"calls=%?([\w.\-]+)")
MOVES = ("copy", "dynamic-slice", "slice", "transpose", "convert", "gather", "pad", "concatenate")
KERNELS = ("fusion", "custom-call", "copy", "sort", "scatter", "gather", "reduce", "dot", "convolution")
_BITS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Move:
    """An instruction that only moves: its result is written to memory in full."""

    operation: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        bits = _BITS.search(self.dtype)
        return math.prod(self.shape) * (int(bits[1]) if bits else 8) // 8


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """Sizes in bytes. ``aliased`` of the ``arguments`` are updated in place; ``kernels`` counts launches
    of one call outside loops; tracing and lowering took ``lower_seconds``; ``big_moves`` are as large as a
    weight or a pool (not looked for in prefill, whose activations are)."""

    name: str
    size: int
    arguments: int
    aliased: int
    outputs: int
    temporaries: int
    kernels: int
    lower_seconds: float
    compile_seconds: float
    big_moves: tuple[Move, ...]


def compile_for(
    spec: ProgramSpec,
    deployment: Deployment,
    sharding: Any,
    names: Collection[str] = PROGRAMS,
) -> Iterator[ProgramReport]:
    """A report for each program of the ladder with one of these ``names``, as it is compiled."""

    struct = partial(jax.ShapeDtypeStruct, sharding=sharding)

    def place(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: struct(leaf.shape, leaf.dtype), tree)

    config, activation = deployment.config, deployment.activation
    tree = weight_shapes(deployment.specs, deployment.weights, activation, sharding)
    state, table = place(state_shapes(spec.config, config, activation)), place(table_shapes(config))
    threshold = smallest_large_array(deployment, state)
    ladder = ShapeLadder.of(config.max_concurrency, config.prefill_chunk)
    started = time.monotonic()
    for (name, size), lowered in lower_programs(spec, tree, state, table, ladder, names):
        lowered_at = time.monotonic()
        compiled = lowered.compile(compiler_options=dict(GPU_OPTIONS))
        compiled_at = time.monotonic()
        memory, text = compiled.memory_analysis(), compiled.as_text()
        assert memory is not None
        assert text is not None
        yield ProgramReport(
            name=name,
            size=size,
            arguments=memory.argument_size_in_bytes,
            aliased=memory.alias_size_in_bytes,
            outputs=memory.output_size_in_bytes,
            temporaries=memory.temp_size_in_bytes,
            kernels=count_kernels(text),
            lower_seconds=lowered_at - started,
            compile_seconds=compiled_at - lowered_at,
            big_moves=() if name == "prefill" else large_moves(text, threshold),
        )
        started = time.monotonic()


def smallest_large_array(deployment: Deployment, state: Any) -> int:
    """Bytes of the smallest matrix or pool: what no decode program may copy, slice or convert."""
    matrices = [spec for spec in spec_leaves(deployment.specs) if spec.role == "matmul"]
    sizes = [
        nbytes(weight_shapes(spec, deployment.weights, deployment.activation))
        // (spec.shape[0] if spec.axes[0] == "experts" else 1)
        for spec in matrices
    ]
    return min(sizes + [nbytes(layer) for layer in state.model.layers])


def large_moves(text: str, threshold: int) -> tuple[Move, ...]:
    """The moves of ``threshold`` bytes or more, in program order."""
    return tuple(move for move in moves(text) if move.nbytes >= threshold)


def moves(text: str) -> Iterator[Move]:
    """Everything in a compiled module that only moves: bare instructions, and fusions that end in one."""
    computations = _computations(text)
    fused = {
        name
        for lines in computations.values()
        for line in lines
        if " fusion(" in line
        for name in _CALLS.findall(line)
    }
    roots = {name: _root(lines) for name, lines in computations.items() if name in fused}
    for name, lines in computations.items():
        if name in fused:
            continue
        for line in lines:
            match = _INSTRUCTION.match(line)
            if match is None:
                continue
            operation = match[4]
            if operation == "fusion":
                called = _CALLS.search(line)
                operation = roots.get(called[1], "") if called else ""
            if operation in MOVES:
                shape = tuple(int(extent) for extent in match[3].split(",") if extent)
                yield Move(operation, match[2], shape)


def count_kernels(text: str) -> int:
    """Instructions of the entry computation that launch something."""
    entry = next(lines for name, lines in _computations(text).items() if name.startswith("ENTRY "))
    matches = (_INSTRUCTION.match(line) for line in entry)
    return sum(match is not None and match[4] in KERNELS for match in matches)


def _computations(text: str) -> dict[str, list[str]]:
    """Lines of each computation by name; the entry's name starts with ``ENTRY ``."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            lines = found.setdefault(("ENTRY " if line.startswith("ENTRY") else "") + match[1], [])
        elif line.startswith("  "):
            lines.append(line)
    return found


def _root(lines: list[str]) -> str:
    """The operation that a fusion ends in."""
    for line in lines:
        match = _INSTRUCTION.match(line)
        if match is not None and match[1]:
            return match[4]
    return ""
