"""What every architecture file provides, and the shapes in which the engine calls it.

An architecture module (``llama.py``, ``qwen3_5.py``) exports, in this order: a frozen config that
satisfies :class:`ModelConfig`, ``parse_config(hf_config) -> Config``, ``abstract(config) -> weights
tree of ArraySpec``, and ``forward(config, weights, state, inputs) -> (hidden, state)`` plus
``logits(config, weights, hidden)``. ``registry.py`` finds it by ``model_type``.

Letters used in shapes: B rows, T columns (tokens of one row in this step), L pages of a block table,
P pages of a pool, S state slots, H hidden, V vocabulary, N query heads, K KV heads, D head dim.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import jax

from ninfer_jax.kernels.gated_delta import RecurrentState
from ninfer_jax.kernels.paged_attention import NULL_PAGE, PAGE_SIZE, KVPool

__all__ = [
    "NULL_PAGE",
    "PAGE_SIZE",
    "Architecture",
    "ArraySpec",
    "ExpertSizes",
    "KVPool",
    "LayerKind",
    "LayerState",
    "ModelConfig",
    "ModelState",
    "RecurrentState",
    "Role",
    "StepInputs",
    "Weights",
]


class LayerKind(Enum):
    FULL_ATTENTION = "full_attention"
    GATED_DELTA_NET = "gated_delta_net"


Role: TypeAlias = Literal["matmul", "embedding", "vector"]


@dataclass(frozen=True)
class ArraySpec:
    """One weight, described once: loading, random init, memory planning and sharding are maps over
    the tree of these that ``abstract(config)`` returns.

    ``sources`` are checkpoint tensor names; several are concatenated on axis 0 in this order (fused
    projections). ``transform`` names a rule in ``artifact`` for layouts that differ from ours.
    Only ``matmul`` and ``embedding`` leaves may be quantised, per row (output channel: every axis but
    the last). A ``keep_float32`` vector stays float32 whatever the activation dtype.
    """

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    sources: tuple[str, ...]
    source_shapes: tuple[tuple[int, ...], ...]
    role: Role = "matmul"
    init: Literal["normal", "ones", "zeros", "uniform"] = "normal"
    transform: str | None = None
    keep_float32: bool = False


class ModelConfig(Protocol):
    """What the engine needs to know of any model. Implementations are frozen and hashable."""

    @property
    def model_type(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def sample_vocab_size(self) -> int:
        """Ids >= this exist as rows of the head but are never sampled."""
        ...

    @property
    def hidden_size(self) -> int: ...
    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def rule_shape(self) -> tuple[int, int, int]:
        """``(Hv, dk, dv)`` of one recurrent slot; zeros where no layer is recurrent."""
        ...

    @property
    def conv_shape(self) -> tuple[int, int]:
        """``(columns, channels)`` of one slot's convolution history; zeros where no layer is recurrent."""
        ...

    @property
    def rope_axes(self) -> int:
        """1, or 3 where text, height and width have their own positions."""
        ...

    @property
    def max_position_embeddings(self) -> int: ...
    @property
    def tied_head(self) -> bool:
        """Whether the embedding is the head as well: a decode round then reads all of it."""
        ...

    @property
    def experts(self) -> "ExpertSizes | None":
        """None where no layer is a mixture."""
        ...


class ExpertSizes(Protocol):
    """A sparse mixture: ``top_k`` of ``count`` experts a token."""

    @property
    def count(self) -> int: ...
    @property
    def top_k(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...


LayerState: TypeAlias = KVPool | RecurrentState


class ModelState(NamedTuple):
    """All of a model's mutable arrays; donated into every program and returned by it.

    ``layers`` has one entry a layer. ``hidden`` ``[S, H]`` is each slot's continuation hidden (the
    final-normed hidden of its last committed token). ``slots`` index ``rule``, ``conv`` and ``hidden``.
    """

    layers: tuple[LayerState, ...]
    hidden: jax.Array


class StepInputs(NamedTuple):
    """One step's tokens. Columns at or past ``lengths[b]`` are padding: they write to the null page
    and leave recurrent state bit-identical. A row of length 0 is wholly padding.

    tokens ``[B, T]`` int32 · positions ``[A, B, T]`` int32 rope positions (A = ``rope_axes``) ·
    starts ``[B]`` int32, cache ordinal of column 0 (= tokens already in the cache) ·
    lengths ``[B]`` int32 · block_tables ``[B, L]`` int32 page ids · slots ``[B]`` int32.
    """

    tokens: jax.Array
    positions: jax.Array
    starts: jax.Array
    lengths: jax.Array
    block_tables: jax.Array
    slots: jax.Array


Weights: TypeAlias = Any
"""A pytree with the structure of ``abstract(config)`` and arrays (or quantised leaves) for its specs."""


class Architecture(Protocol):
    """The module interface of one architecture file."""

    def parse_config(self, config: Mapping[str, Any]) -> ModelConfig:
        """From a Hugging Face ``config.json``. Refuses by name what it does not implement."""
        ...

    def abstract(self, config: Any) -> Weights: ...

    def forward(
        self, config: Any, weights: Weights, state: ModelState, inputs: StepInputs
    ) -> tuple[jax.Array, ModelState]:
        """Final-normed hidden ``[B, T, H]`` and the new state."""
        ...

    def logits(self, config: Any, weights: Weights, hidden: jax.Array) -> jax.Array:
        """``[..., H] -> [..., V]`` float32; ids >= ``sample_vocab_size`` are -inf."""
        ...
