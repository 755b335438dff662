"""The compiled programs: module-level jitted functions over an explicit, donated state.

Shapes and settings that select a program are static (:class:`ProgramSpec`, array shapes); everything a
request chooses is an array. Each program returns the new state and at most one small array, the only
thing that the host copies back in a round.

Letters: B rows, T columns, A rope axes, C lanes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.rng import Purpose
from ninfer_jax.engine.sampling import SamplingPipeline, SamplingRows
from ninfer_jax.engine.state import EngineState, LaneTable
from ninfer_jax.models.base import (
    NULL_PAGE,
    PAGE_SIZE,
    Architecture,
    KVPool,
    LayerState,
    ModelConfig,
    ModelState,
    RecurrentState,
    StepInputs,
    Weights,
)

NO_IMAGE = -1

INVALID_TOKEN = -1
"""Returned for a row whose hidden state is not finite: the state is broken, no token would be true."""


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """The static part of every program; hashable."""

    architecture: Architecture
    config: ModelConfig
    sampling: SamplingPipeline


class PrefillInputs(NamedTuple):
    """One chunk of one lane. tokens ``[T]`` and positions ``[A, T]`` int32, padded; the scalars int32:
    ``start`` cache ordinal of the first token, ``length`` real tokens (>= 1), ``is_output`` counts them
    for penalties, ``sample`` asks for the token after the last."""

    tokens: jax.Array
    positions: jax.Array
    lane: jax.Array
    start: jax.Array
    length: jax.Array
    is_output: jax.Array
    sample: jax.Array

    @classmethod
    def padded(
        cls,
        bucket: int,
        lane: int,
        start: int,
        tokens: Sequence[int],
        positions: Sequence[Sequence[int]],
        *,
        is_output: bool = False,
        sample: bool = False,
    ) -> "PrefillInputs":
        """Host arrays for ``tokens`` with one row of ``positions`` a rope axis."""
        length = len(tokens)
        padded_tokens = np.zeros(bucket, np.int32)
        padded_tokens[:length] = tokens
        padded_positions = np.zeros((len(positions), bucket), np.int32)
        padded_positions[:, :length] = positions
        scalars = (np.int32(value) for value in (lane, start, length, is_output, sample))
        return cls(padded_tokens, padded_positions, *scalars)  # type: ignore[arg-type]


class DecodeInputs(NamedTuple):
    """One round, ``[B]`` int32 each: the lane, its last accepted token, and the cache ordinal where
    that token is written. Lanes are distinct."""

    lanes: jax.Array
    tokens: jax.Array
    frontiers: jax.Array


@partial(jax.jit, static_argnames="spec", donate_argnames="state")
def prefill_chunk(
    spec: ProgramSpec, weights: Weights, state: EngineState, table: LaneTable, inputs: PrefillInputs
) -> tuple[jax.Array, EngineState]:
    """Write one chunk; return the token drawn after it ``[1]`` int32 (0 unless ``sample``)."""
    lanes = inputs.lane[None]
    step = StepInputs(
        tokens=inputs.tokens[None],
        positions=inputs.positions[:, None],
        starts=inputs.start[None],
        lengths=inputs.length[None],
        block_tables=table.block_tables[lanes],
        slots=table.slots[lanes],
    )
    hidden, model = spec.architecture.forward(spec.config, weights, state.model, step)
    last = lax.dynamic_index_in_dim(hidden[0], inputs.length - 1, keepdims=True)  # [1, H]
    is_counted = (jnp.arange(inputs.tokens.shape[0]) < inputs.length) & (inputs.is_output != 0)
    counts = state.counts.at[inputs.lane, inputs.tokens].add(is_counted.astype(jnp.int32))

    def sample() -> jax.Array:
        with jax.named_scope("sample"):
            logits = spec.architecture.logits(spec.config, weights, last)
            positions = (inputs.start + inputs.length)[None]
            rows = _rows(table, lanes)
            token = spec.sampling.sample(logits, rows, counts, lanes, positions, Purpose.PREFILL)
        return _or_invalid(token, last)

    token = lax.cond(inputs.sample != 0, sample, lambda: jnp.zeros(1, jnp.int32))
    model = model._replace(hidden=model.hidden.at[step.slots].set(last.astype(model.hidden.dtype)))
    return token, EngineState(model, counts)


@partial(jax.jit, static_argnames="spec", donate_argnames="state")
def decode_round(
    spec: ProgramSpec, weights: Weights, state: EngineState, table: LaneTable, inputs: DecodeInputs
) -> tuple[jax.Array, EngineState]:
    """Feed one token to every row; return the next ones ``[B]`` int32."""
    lanes = inputs.lanes
    rope = inputs.frontiers + table.rope_deltas[lanes]
    step = StepInputs(
        tokens=inputs.tokens[:, None],
        positions=jnp.broadcast_to(rope[None, :, None], (spec.config.rope_axes, lanes.shape[0], 1)),
        starts=inputs.frontiers,
        lengths=jnp.ones_like(lanes),
        block_tables=table.block_tables[lanes],
        slots=table.slots[lanes],
    )
    hidden, model = spec.architecture.forward(spec.config, weights, state.model, step)
    last = hidden[:, 0]
    counts = state.counts.at[lanes, inputs.tokens].add(1)
    logits = spec.architecture.logits(spec.config, weights, last)
    with jax.named_scope("sample"):
        tokens = spec.sampling.sample(
            logits, _rows(table, lanes), counts, lanes, inputs.frontiers + 1, Purpose.DECODE
        )
        tokens = _or_invalid(tokens, last)
    model = model._replace(hidden=model.hidden.at[step.slots].set(last.astype(model.hidden.dtype)))
    return tokens, EngineState(model, counts)


class BindInputs(NamedTuple):
    """How a lane starts, int32 scalars: it writes state slot ``slot``, which becomes a copy of slot
    ``image``, or zero where that is negative. ``source_page`` is copied to ``page`` in every pool; null
    to null copies nothing that is read."""

    lane: jax.Array
    slot: jax.Array
    image: jax.Array
    source_page: jax.Array
    page: jax.Array

    @classmethod
    def of(cls, lane: int, binding: LaneBinding) -> "BindInputs":
        image = NO_IMAGE if binding.image is None else binding.image
        if binding.tail_page is None:
            return cls.made(lane, binding.slot, image)
        return cls.made(
            lane, binding.slot, image, binding.tail_page, binding.pages[binding.start // PAGE_SIZE]
        )

    @classmethod
    def made(
        cls, lane: int, slot: int, image: int = NO_IMAGE, source_page: int = NULL_PAGE, page: int = NULL_PAGE
    ) -> "BindInputs":
        return cls(*(np.int32(value) for value in (lane, slot, image, source_page, page)))  # type: ignore[arg-type]


@partial(jax.jit, donate_argnames="state")
def bind_lane(state: EngineState, inputs: BindInputs) -> EngineState:
    """Everything that a request starts with: its state image, its partly filled page, zero counts."""

    def start(pool: jax.Array) -> jax.Array:
        image = _row(pool, jnp.maximum(inputs.image, 0))
        return _with_row(pool, inputs.slot, jnp.where(inputs.image >= 0, image, jnp.zeros_like(image)))

    def bind(layer: LayerState) -> LayerState:
        if isinstance(layer, KVPool):
            return KVPool(*(_with_row(pool, inputs.page, _row(pool, inputs.source_page)) for pool in layer))
        return RecurrentState(start(layer.rule), start(layer.conv))

    model = state.model
    model = ModelState(tuple(bind(layer) for layer in model.layers), start(model.hidden))
    return EngineState(model, state.counts.at[inputs.lane].set(0))


@partial(jax.jit, donate_argnames="state")
def copy_image(state: EngineState, source: jax.Array, destination: jax.Array) -> EngineState:
    """Copy one state image to another slot: every recurrent layer and the continuation hidden."""

    def copy(pool: jax.Array) -> jax.Array:
        return _with_row(pool, destination, _row(pool, source))

    model = state.model
    layers = tuple(
        layer if isinstance(layer, KVPool) else RecurrentState(copy(layer.rule), copy(layer.conv))
        for layer in model.layers
    )
    return state._replace(model=ModelState(layers, copy(model.hidden)))


def _row(pool: jax.Array, index: jax.Array) -> jax.Array:
    row: jax.Array = lax.dynamic_index_in_dim(pool, index, keepdims=False)
    return row


def _with_row(pool: jax.Array, index: jax.Array, row: jax.Array) -> jax.Array:
    updated: jax.Array = lax.dynamic_update_index_in_dim(pool, row, index, 0)
    return updated


def _rows(table: LaneTable, lanes: jax.Array) -> SamplingRows:
    return SamplingRows(*(field[lanes] for field in table.sampling))


def _or_invalid(tokens: jax.Array, hidden: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(hidden).all(axis=-1), tokens, INVALID_TOKEN)
