"""What a deployment holds on its device, by arithmetic alone.

The one place that knows: ``plan`` and ``serve`` print it, ``--kv-capacity auto`` inverts it, and the cache
takes its page size from it. Sizes are those of the shapes that loading and allocation themselves use, so
the ledger cannot drift from what is resident; only the temporaries of compiled programs are an estimate
until those are compiled.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from ninfer_jax.config import PAGE_SIZE, EngineConfig, WeightFormat
from ninfer_jax.engine.state import EngineState, LaneTable, allocate
from ninfer_jax.kernels.linear import QuantArray
from ninfer_jax.kernels.moe.pallas_triton import MIN_ROWS
from ninfer_jax.models.base import ArraySpec, KVPool, ModelConfig, Weights
from ninfer_jax.models.groups import group_format
from ninfer_jax.models.weights import is_spec, leaf_dtype, spec_leaves


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model, the format it is to be loaded in, and a configuration; nothing is on a device yet. ``groups``
    are the weights to be loaded beside its text decoder, by name."""

    model: ModelConfig
    specs: Weights
    config: EngineConfig
    weights: WeightFormat
    activation: np.dtype[Any]
    groups: Mapping[str, Weights] = field(default_factory=dict)

    def with_settings(self, **settings: Any) -> "Deployment":
        """The same with other members of ``config``."""
        return replace(self, config=replace(self.config, **settings))


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
    shapes: EngineState = jax.eval_shape(lambda: allocate(model, config, dtype))
    return shapes


def table_shapes(config: EngineConfig) -> LaneTable:
    shapes: LaneTable = jax.eval_shape(
        lambda: LaneTable.of([None] * config.max_concurrency, config.pages_per_lane)
    )
    return shapes


def nbytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def page_bytes(state: EngineState) -> int:
    """K and V of one page in every attention layer."""
    return sum(nbytes(layer) // layer.k.shape[0] for layer in state.model.layers if isinstance(layer, KVPool))


def image_bytes(state: EngineState) -> int:
    """One state image: a slot of every recurrent layer, and its continuation hidden."""
    recurrent = [layer for layer in state.model.layers if not isinstance(layer, KVPool)]
    return nbytes((recurrent, state.model.hidden)) // int(state.model.hidden.shape[0])


@dataclass(frozen=True, slots=True)
class Ledger:
    """Bytes of device memory by what holds them; ``weights`` and ``kv_pools`` by element type, ``groups`` (of
    weights beside the text decoder's) by name.

    ``state`` is C + H images, ``workspace`` what a lane has beside them (penalty counts, block tables,
    samplers), ``temporaries`` what the hungriest program needs while it runs, ``runtime`` what the process
    holds beside arrays. ``kv_capacity`` is in tokens.
    """

    weights: Mapping[str, int]
    kv_pools: Mapping[str, int]
    state: int
    workspace: int
    temporaries: int
    runtime: int
    kv_capacity: int
    page_bytes: int
    num_images: int
    groups: Mapping[str, int] = field(default_factory=dict)

    def entries(self) -> list[tuple[str, int]]:
        """What holds how much, as people read it; what holds nothing is left out."""
        pools = f"KV pools of {self.kv_capacity:,} tokens in"
        rows = [
            *((f"weights in {dtype}", size) for dtype, size in self.weights.items()),
            *((f"{name} weights", size) for name, size in self.groups.items()),
            *((f"{pools} {dtype}", size) for dtype, size in self.kv_pools.items()),
            (f"state of {self.num_images} sequence{'' if self.num_images == 1 else 's'}", self.state),
            ("workspace", self.workspace),
            ("graph temporaries", self.temporaries),
            ("runtime", self.runtime),
        ]
        return [(name, size) for name, size in rows if size]

    @property
    def total(self) -> int:
        return sum(size for _, size in self.entries())

    def largest_kv_capacity(self, memory: int) -> int:
        """The most KV tokens, in whole pages, with everything else as it is; 0 if nothing fits."""
        if not self.page_bytes:
            return 0
        spare = (memory - self.total) // self.page_bytes
        return max(0, self.kv_capacity + spare * PAGE_SIZE)


def make_ledger(deployment: Deployment, *, runtime: int = 0, temporaries: int | None = None) -> Ledger:
    """``temporaries`` None estimates them."""
    config = deployment.config
    state = state_shapes(deployment.model, config, deployment.activation)
    pools = [layer for layer in state.model.layers if isinstance(layer, KVPool)]
    return Ledger(
        weights=_by_dtype(weight_shapes(deployment.specs, deployment.weights, deployment.activation)),
        kv_pools=_by_dtype(pools),
        state=image_bytes(state) * config.num_slots,
        workspace=nbytes((state.counts, table_shapes(config))),
        temporaries=estimate_temporaries(deployment) if temporaries is None else temporaries,
        runtime=runtime,
        kv_capacity=config.num_pages * PAGE_SIZE,
        page_bytes=page_bytes(state),
        num_images=config.num_slots,
        groups={name: _group_bytes(deployment, name) for name in deployment.groups},
    )


def _group_bytes(deployment: Deployment, name: str) -> int:
    weights = group_format(name, deployment.weights)
    return nbytes(weight_shapes(deployment.groups[name], weights, deployment.activation))


def _by_dtype(tree: Any) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for leaf in jax.tree.leaves(tree):
        sizes[np.dtype(leaf.dtype).name] += nbytes(leaf)
    return dict(sizes)


def estimate_temporaries(deployment: Deployment) -> int:
    """Of the largest prefill program: the widest product's operands, in and out, and where there are
    experts the rows of their blocks."""
    model, columns, itemsize = (
        deployment.model,
        deployment.config.prefill_chunk,
        deployment.activation.itemsize,
    )
    matrices = [
        spec for spec in spec_leaves(deployment.specs) if spec.role == "matmul" and spec.axes[0] != "vocab"
    ]
    dense = [spec.shape for spec in matrices if spec.axes[0] != "experts"]
    size = columns * max(rows + inputs for rows, inputs in dense) * (itemsize + 4)
    if (experts := model.experts) is not None:
        pairs = columns * experts.top_k
        rows = min(pairs * MIN_ROWS, pairs + experts.count * MIN_ROWS)
        size += rows * (model.hidden_size * 4 + experts.intermediate_size * itemsize)
    return size
