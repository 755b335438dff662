"""What ``linear`` and ``embed`` compute, in the plainest form."""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.linear.quant import Matrix, QuantArray


def dequantise(weight: Matrix) -> jax.Array:
    """Float32 ``[out, in]``."""
    if isinstance(weight, QuantArray):
        return weight.values.astype(jnp.float32) * weight.scale[:, None]
    return weight.astype(jnp.float32)


def linear(x: jax.Array, weight: Matrix, bias: jax.Array | None = None) -> jax.Array:
    """``y[..., o] = sum_i x[..., i] * weight[o, i] + bias[o]`` in float32, cast to ``x.dtype``."""
    y = jnp.einsum("...i,oi->...o", x.astype(jnp.float32), dequantise(weight))
    if bias is not None:
        y = y + bias.astype(jnp.float32)
    return y.astype(x.dtype)


def embed(ids: jax.Array, weight: Matrix, dtype: jnp.dtype) -> jax.Array:
    """Rows ``ids`` of ``weight``, ``[...] -> [..., H]`` in ``dtype``."""
    return dequantise(weight)[ids].astype(dtype)
