"""What a configuration needs of a device, by arithmetic alone: memory, and bytes a decode round moves.

Every size comes from the shapes that loading and allocation themselves use, so the ledger cannot drift
from what is resident; only the workspace of compiled programs is an estimate until they are compiled.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from ninfer_jax.cache import pages_for
from ninfer_jax.config import PAGE_SIZE, EngineConfig, WeightFormat
from ninfer_jax.engine.state import EngineState, LaneTable, allocate
from ninfer_jax.kernels.linear import QuantArray
from ninfer_jax.kernels.moe.pallas_triton import MIN_ROWS
from ninfer_jax.models.base import ArraySpec, KVPool, ModelConfig, Weights
from ninfer_jax.models.weights import is_spec, leaf_dtype, spec_leaves

RUNTIME_BYTES = 768 << 20
"""An allowance for what a CUDA process holds beside XLA's arrays: context, loaded kernels, libraries."""


def weight_shapes(
    specs: Weights, weights: WeightFormat, activation: DTypeLike, sharding: Any = None
) -> Weights:
    """The tree that loading makes of ``specs``, with a ShapeDtypeStruct for each array."""
    struct = partial(jax.ShapeDtypeStruct, sharding=sharding)

    def shapes(spec: ArraySpec) -> Any:
        dtype = leaf_dtype(spec, weights, activation)
        values = struct(spec.shape, dtype)
        return values if dtype != np.int8 else QuantArray(values, struct(spec.shape[:-1], jnp.float32))  # type: ignore[arg-type]

    return jax.tree.map(shapes, specs, is_leaf=is_spec)


def state_shapes(model: ModelConfig, config: EngineConfig, dtype: DTypeLike) -> EngineState:
    """The engine's mutable arrays, as ShapeDtypeStructs."""
    num_pages = pages_for(config.kv_capacity) + 1
    shapes: EngineState = jax.eval_shape(lambda: allocate(model, num_pages, config.max_concurrency, dtype))
    return shapes


def table_shapes(config: EngineConfig) -> LaneTable:
    shapes: LaneTable = jax.eval_shape(
        lambda: LaneTable.of([None] * config.max_concurrency, pages_for(config.max_context))
    )
    return shapes


def nbytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


@dataclass(frozen=True, slots=True)
class Ledger:
    """Bytes of device memory by what holds them. ``weights`` is by dtype. ``kv_capacity`` in tokens."""

    weights: Mapping[str, int]
    kv_pools: int
    recurrent_state: int
    lane_state: int
    workspace: int
    kv_capacity: int
    page_bytes: int
    runtime: int = RUNTIME_BYTES

    @property
    def total(self) -> int:
        resident = self.kv_pools + self.recurrent_state + self.lane_state
        return sum(self.weights.values()) + resident + self.workspace + self.runtime

    def largest_kv_capacity(self, memory: int) -> int:
        """The most KV tokens, in whole pages, with everything else as it is; 0 if nothing fits."""
        spare = memory - self.total
        tokens = self.kv_capacity + spare // self.page_bytes * PAGE_SIZE if self.page_bytes else 0
        return max(0, tokens)


def make_ledger(
    model: ModelConfig,
    specs: Weights,
    config: EngineConfig,
    weights: WeightFormat,
    activation: DTypeLike,
    workspace: int | None = None,
) -> Ledger:
    """``workspace`` None estimates the temporaries of the largest program."""
    by_dtype: Counter[str] = Counter()
    for leaf in jax.tree.leaves(weight_shapes(specs, weights, activation)):
        by_dtype[np.dtype(leaf.dtype).name] += nbytes(leaf)
    state = state_shapes(model, config, activation)
    pools = [layer for layer in state.model.layers if isinstance(layer, KVPool)]
    recurrent = [layer for layer in state.model.layers if not isinstance(layer, KVPool)]
    kv_bytes = nbytes(pools)
    num_pages = pools[0].k.shape[0] if pools else 1
    return Ledger(
        weights=dict(by_dtype),
        kv_pools=kv_bytes,
        recurrent_state=nbytes(recurrent),
        lane_state=nbytes((state.model.hidden, state.counts, table_shapes(config))),
        workspace=estimate_workspace(model, specs, config, activation) if workspace is None else workspace,
        kv_capacity=config.kv_capacity,
        page_bytes=kv_bytes // num_pages,
    )


def estimate_workspace(
    model: ModelConfig, specs: Weights, config: EngineConfig, activation: DTypeLike
) -> int:
    """Temporaries of the largest prefill program: the widest product's operands, in and out, and where
    there are experts the rows of their blocks."""
    columns, itemsize = config.prefill_chunk, np.dtype(activation).itemsize
    matrices = [spec for spec in spec_leaves(specs) if spec.role == "matmul" and spec.axes[0] != "vocab"]
    dense = [spec.shape for spec in matrices if spec.axes[0] != "experts"]
    size = columns * max(rows + inputs for rows, inputs in dense) * (itemsize + 4)
    experts = getattr(model, "experts", None)
    if experts is not None:
        pairs = columns * experts.top_k
        rows = min(pairs * MIN_ROWS, pairs + experts.count * MIN_ROWS)
        size += rows * (model.hidden_size * 4 + experts.intermediate_size * itemsize)
    return int(size)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one decode round must read or write at least. ``tokens_per_second`` is the rate at which
    memory alone would allow it; nothing was measured."""

    batch: int
    context: int
    weights: int
    kv: int
    state: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.state

    def tokens_per_second(self, bandwidth: int) -> float:
        return self.batch * bandwidth / self.total


def decode_traffic(
    model: ModelConfig,
    specs: Weights,
    config: EngineConfig,
    weights: WeightFormat,
    activation: DTypeLike,
    *,
    batch: int,
    context: int,
) -> Traffic:
    """Every weight once, an embedding row a token, the experts that ``batch`` random tokens choose, the
    live keys and values, and the recurrent state in and out."""
    is_tied = getattr(model, "tied_head", False)
    experts = getattr(model, "experts", None)
    moved = 0.0
    for spec in spec_leaves(specs):
        size = float(nbytes(weight_shapes(spec, weights, activation)))
        if spec.role == "embedding" and not is_tied:
            size *= batch / spec.shape[0]
        elif spec.axes[0] == "experts" and experts is not None:
            size *= 1 - (1 - experts.top_k / experts.count) ** batch
        moved += size
    state = state_shapes(model, config, activation)
    kv = slots = 0
    for layer in state.model.layers:
        if isinstance(layer, KVPool):
            kv += nbytes(layer) // (layer.k.shape[0] * PAGE_SIZE) * (context + 1) * batch
        else:
            slots += 2 * nbytes(layer) // config.max_concurrency * batch
    return Traffic(batch, context, round(moved), kv, slots)
