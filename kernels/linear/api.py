"""``linear`` and ``embed``: the only way model code multiplies by, or looks up, a weight matrix."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ninfer_jax.kernels.linear import numba_cpu, xla_cpu
from ninfer_jax.kernels.linear.quant import Matrix, QuantArray, stored_values


@jax.named_scope("linear")
def linear(x: jax.Array, weight: Matrix, bias: jax.Array | None = None) -> jax.Array:
    """``x @ weight.T + bias``: ``[..., in]`` by ``[out, in]`` -> ``[..., out]`` in ``x.dtype``.

    Sums are taken in float32 (in int32 where both sides are int8). ``weight`` may be float32, bfloat16
    or a :class:`QuantArray`; how it is read depends on the platform that the program is lowered for.
    """
    if x.shape[-1] != weight.shape[-1]:
        raise ValueError(f"linear: {x.shape[-1]} inputs against a weight of shape {weight.shape}")
    rows = x.reshape(-1, x.shape[-1])
    cpu_dot = numba_cpu.dot if numba_cpu.supports(weight) else xla_cpu.dot
    y: jax.Array = jax.lax.platform_dependent(rows, weight, cpu=cpu_dot, default=_dot)
    if bias is not None:
        y = y + bias.astype(jnp.float32)
    return y.astype(x.dtype).reshape(*x.shape[:-1], weight.shape[0])


def _dot(x: jax.Array, weight: Matrix) -> jax.Array:
    """The scale comes after the dot, so that XLA converts the values inside its own matrix kernel."""
    values = stored_values(weight).astype(x.dtype)
    precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None  # NVIDIA's default is TF32
    y = jax.lax.dot_general(
        x, values, (((1,), (1,)), ((), ())), precision=precision, preferred_element_type=jnp.float32
    )
    return y * weight.scale if isinstance(weight, QuantArray) else y


def embed(ids: jax.Array, weight: Matrix, dtype: DTypeLike = jnp.float32) -> jax.Array:
    """Rows ``ids`` of ``weight [V, H]``: ``[...] -> [..., H]`` in ``dtype``. Ids must be in range."""
    if isinstance(weight, QuantArray):
        return (weight.values[ids].astype(jnp.float32) * weight.scale[ids][..., None]).astype(dtype)
    return weight[ids].astype(dtype)
