"""The sparse Qwen3.5 hybrids: ``qwen3_5.py`` with a mixture of experts for its feed-forward."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.linear import Matrix, linear
from ninfer_jax.kernels.moe import route, sparse_experts
from ninfer_jax.models.base import ArraySpec, ModelState, StepInputs
from ninfer_jax.models.qwen3_5 import (
    DenseWeights,
    Qwen35Weights,
    abstract_decoder,
    abstract_dense,
    decoder,
    dense_feed_forward,
    logits,
)
from ninfer_jax.models.qwen3_5_config import Qwen35Config, parse_config
from ninfer_jax.models.specs import matrix

__all__ = ["abstract", "forward", "logits", "parse_config"]


class SparseWeights(NamedTuple):
    """router ``[E, H]`` and shared_gate ``[1, H]`` are never quantised: a choice between near equals must
    not depend on the weight format. gate_up ``[E, 2I, H]`` gate rows first, down ``[E, H, I]``."""

    router: jax.Array
    gate_up: Matrix
    down: Matrix
    shared: DenseWeights
    shared_gate: jax.Array


def abstract_sparse(config: Qwen35Config, name: str) -> Any:
    """The specs of one mixture; ``name`` ends in ``mlp.``."""
    assert config.experts is not None
    experts, hidden = config.experts, config.hidden_size
    inner = experts.intermediate_size

    def stacked(source: str, out: int, columns: int, axes: tuple[str, str]) -> Any:
        shape = (experts.count, out, columns)
        return ArraySpec(shape, ("experts", *axes), (name + source,), (shape,))

    return SparseWeights(
        router=matrix({name + "gate.weight": experts.count}, hidden, (None, "hidden"), role="vector"),
        gate_up=stacked("experts.gate_up_proj", 2 * inner, hidden, ("intermediate", "hidden")),
        down=stacked("experts.down_proj", hidden, inner, ("hidden", "intermediate")),
        shared=abstract_dense(hidden, experts.shared_intermediate_size, name + "shared_expert."),
        shared_gate=matrix({name + "shared_expert_gate.weight": 1}, hidden, (None, "hidden"), role="vector"),
    )


def abstract(config: Qwen35Config) -> Qwen35Weights:
    """The weights tree with an ArraySpec for each array."""
    return abstract_decoder(config, lambda name: abstract_sparse(config, name))


def sparse_feed_forward(config: Qwen35Config, weights: SparseWeights, x: jax.Array) -> jax.Array:
    """``[B, T, H] -> [B, T, H]``: each token's own experts, and the shared one through its gate."""
    assert config.experts is not None
    rows = x.reshape(-1, x.shape[-1])
    with jax.named_scope("router"):
        routing = route(linear(rows, weights.router), config.experts.top_k)
    with jax.named_scope("experts"):
        chosen = sparse_experts(rows, weights.gate_up, weights.down, routing)
    with jax.named_scope("shared_expert"):
        shared = dense_feed_forward(config, weights.shared, rows)
        shared = jax.nn.sigmoid(linear(rows, weights.shared_gate)) * shared
    return jnp.asarray(chosen + shared).reshape(x.shape)


def forward(
    config: Qwen35Config, weights: Qwen35Weights, state: ModelState, inputs: StepInputs
) -> tuple[jax.Array, ModelState]:
    """Final-normed hidden ``[B, T, H]`` and the new state."""
    return decoder(config, weights, state, inputs, sparse_feed_forward)
