"""How plain XLA:CPU multiplies fastest, by weight format and number of rows (without Numba).

A dot whose operand needs a conversion is either fused with it (and reads int8) or writes the converted
weight out at every call; which one happens depends on how the dot is spelled, and the wrong spelling
costs ten times as much. Each form here says what it relies on.
"""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.linear.quant import Matrix, QuantArray

MAX_INT8_ROWS = 192
"""Up to here int8 x int8 wins, above it one conversion of the weight to bfloat16 is repaid."""


def dot(x: jax.Array, weight: Matrix) -> jax.Array:
    """``[rows, in]`` by ``[out, in]`` -> ``[rows, out]`` float32."""
    if isinstance(weight, QuantArray):
        if x.shape[0] <= MAX_INT8_ROWS:
            return _int8_dot(x, weight)
        return _bf16_dot(x, weight.values) * weight.scale
    if weight.dtype == jnp.bfloat16:
        return _bf16_gemv(x, weight) if x.shape[0] == 1 else _bf16_dot(x, weight)
    return _dot(x, weight, jnp.float32)


def quantise_activations(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """int8 values and float32 scales ``[rows, 1]`` of each row, rounded to nearest."""
    largest = jnp.max(jnp.abs(x), axis=1, keepdims=True)
    inverse = jnp.where(largest > 0, 127.0 / largest, 0.0)
    return jnp.round(x * inverse).astype(jnp.int8), largest * (1 / 127)


def _int8_dot(x: jax.Array, weight: QuantArray) -> jax.Array:
    """int8 x int8 -> int32 with one scale a row and one a channel.

    Integer sums are exact, so a row's result does not depend on the rows beside it. One row is doubled:
    with two, XLA takes its int8 matrix kernel; with one, a loop that is twenty times slower.
    """
    values, scale = quantise_activations(x)
    if x.shape[0] == 1:
        values = jnp.concatenate((values, values))
    sums = _dot(values, weight.values, jnp.int32)[: x.shape[0]]
    return sums.astype(jnp.float32) * scale * weight.scale


def _bf16_dot(x: jax.Array, weight: jax.Array) -> jax.Array:
    return _dot(x.astype(jnp.bfloat16), weight.astype(jnp.bfloat16), jnp.float32)


def _bf16_gemv(x: jax.Array, weight: jax.Array) -> jax.Array:
    """A vector times a transposed, then converted weight: the spelling that fuses the conversion."""
    return (x[0] @ weight.T.astype(jnp.float32))[None]


def _dot(x: jax.Array, weight: jax.Array, accumulator: jnp.dtype | type) -> jax.Array:
    return jax.lax.dot_general(x, weight, (((1,), (1,)), ((), ())), preferred_element_type=accumulator)
