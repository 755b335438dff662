"""``linear`` and ``embed``: the only way model code multiplies by, or looks up, a weight matrix."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ninfer_jax.kernels.linear.quant import Matrix, QuantArray


def linear(x: jax.Array, weight: Matrix, bias: jax.Array | None = None) -> jax.Array:
    """``x @ weight.T + bias``: ``[..., in]`` by ``[out, in]`` -> ``[..., out]`` in ``x.dtype``.

    Sums are taken in float32. ``weight`` may be float32, bfloat16 or a :class:`QuantArray`.
    """
    values = weight.values if isinstance(weight, QuantArray) else weight
    if x.shape[-1] != values.shape[1]:
        raise ValueError(f"linear: {x.shape[-1]} inputs against a weight of shape {values.shape}")
    y = jax.lax.dot_general(
        x, values.astype(x.dtype), (((x.ndim - 1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )
    if isinstance(weight, QuantArray):
        y = y * weight.scale
    if bias is not None:
        y = y + bias.astype(jnp.float32)
    return y.astype(x.dtype)


def embed(ids: jax.Array, weight: Matrix, dtype: DTypeLike = jnp.float32) -> jax.Array:
    """Rows ``ids`` of ``weight [V, H]``: ``[...] -> [..., H]`` in ``dtype``. Ids must be in range."""
    if isinstance(weight, QuantArray):
        return (weight.values[ids].astype(jnp.float32) * weight.scale[ids][..., None]).astype(dtype)
    return weight[ids].astype(dtype)
