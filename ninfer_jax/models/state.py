"""Allocation of a model's mutable arrays."""

import jax.numpy as jnp
from jax.typing import DTypeLike

from ninfer_jax.kernels.gated_delta import allocate_slots
from ninfer_jax.kernels.paged_attention import allocate_pool
from ninfer_jax.models.base import LayerKind, LayerState, ModelConfig, ModelState


def allocate_state(
    config: ModelConfig, num_pages: int, num_slots: int, kv_dtype: DTypeLike, hidden_dtype: DTypeLike
) -> ModelState:
    """Zeroed state: a pool of ``num_pages`` (the null page included) for every attention layer,
    ``num_slots`` recurrent slots for every other. On CPU ``kv_dtype`` should be float32: an in-place
    update of a bfloat16 pool there converts the whole pool."""

    def allocate(kind: LayerKind) -> LayerState:
        match kind:
            case LayerKind.FULL_ATTENTION:
                return allocate_pool(num_pages, config.num_kv_heads, config.head_dim, kv_dtype)
            case LayerKind.GATED_DELTA_NET:
                return allocate_slots(num_slots, config.rule_shape, config.conv_shape, hidden_dtype)

    layers = tuple(allocate(kind) for kind in config.layer_kinds)
    return ModelState(layers, jnp.zeros((num_slots, config.hidden_size), hidden_dtype))
