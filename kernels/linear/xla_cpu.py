"""How plain XLA:CPU multiplies fastest, by weight format and number of rows (without Numba).

A dot whose operand needs a conversion is either fused with it (and reads int8) or writes the converted
weight out at every call; which one happens depends on how the dot is spelled, and the wrong spelling
costs ten times as much. Each form here says what it relies on.
"""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.linear.quant import Matrix, QuantArray

MAX_INT8_ROWS = 128
"""Up to here int8 x int8 wins, above it one conversion of the weight to bfloat16 is repaid."""

_BASE = 254.0
_SMALLEST = 1e-30
"""A row all below this counts as zero: its scale would not invert."""


def dot(x: jax.Array, weight: Matrix) -> jax.Array:
    """``[rows, in]`` by ``[out, in]`` -> ``[rows, out]`` float32."""
    if isinstance(weight, QuantArray):
        if x.shape[0] <= MAX_INT8_ROWS:
            return _int8_dot(x, weight)
        return _bf16_dot(x, weight.values) * weight.scale
    if weight.dtype == jnp.bfloat16:
        return _bf16_gemv(x, weight) if x.shape[0] == 1 else _bf16_dot(x, weight)
    return _dot(x, weight, jnp.float32)


def _int8_dot(x: jax.Array, weight: QuantArray) -> jax.Array:
    """int8 x int8 -> int32 with activations in two digits of base 254, one scale a row.

    One int8 digit a row costs a small model several percent of perplexity; a second one, for what the
    first rounds away, makes the activations as good as float32, and the doubled rows are nearly free
    where reading the weight is what takes the time. Integer sums are exact, so a row's result does not
    depend on the rows beside it. The weight is the left operand: XLA's kernel repacks the right one at
    every call. (A single int8 row would miss that kernel altogether.)
    """
    rows = x.shape[0]
    digits, scale = split_digits(x)
    sums = _dot(weight.values, digits, jnp.int32).T.astype(jnp.float32)
    return (sums[:rows] + sums[rows:] * (1 / _BASE)) * scale * weight.scale


def split_digits(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``x [rows, in]`` as digits int8 ``[2 * rows, in]`` and scale float32 ``[rows, 1]``: row r is
    ``scale * (digits[r] + digits[rows + r] / 254)`` to within ``scale / 508``."""
    largest = jnp.max(jnp.abs(x), axis=1, keepdims=True)
    steps = x * jnp.where(largest > _SMALLEST, 127.0 / largest, 0.0)
    high = jnp.round(steps)
    low = jnp.round((steps - high) * _BASE)
    return jnp.concatenate((high, low)).astype(jnp.int8), largest * (1 / 127)


def _bf16_dot(x: jax.Array, weight: jax.Array) -> jax.Array:
    return _dot(x.astype(jnp.bfloat16), weight.astype(jnp.bfloat16), jnp.float32)


def _bf16_gemv(x: jax.Array, weight: jax.Array) -> jax.Array:
    """A vector times a transposed, then converted weight: the spelling that fuses the conversion."""
    return (x[0] @ weight.T.astype(jnp.float32))[None]


def _dot(x: jax.Array, weight: jax.Array, accumulator: jnp.dtype | type) -> jax.Array:
    return jax.lax.dot_general(x, weight, (((1,), (1,)), ((), ())), preferred_element_type=accumulator)
