"""A sparse mixture in XLA: a product for each chosen pair in decode, sorted blocks of pairs in prefill.

``jax.lax.ragged_dot`` is not used: on CPU and GPU it multiplies every token with every expert (94 times
slower for 64 experts on CPU).
"""

import jax
import jax.numpy as jnp
from jax import lax

from ninfer_jax.kernels.linear import Matrix, QuantArray, stored_values

BLOCK_SIZES = (64, 32, 16)
"""Pairs of one block, largest first: the largest that an expert fills on average is taken."""


def expert(weight: Matrix, index: jax.Array) -> Matrix:
    """The matrix of one expert, ``[E, out, in] -> [out, in]``. A product reads it where it lies."""

    def select(array: jax.Array) -> jax.Array:
        chosen: jax.Array = lax.dynamic_index_in_dim(array, index, keepdims=False)
        return chosen

    if isinstance(weight, QuantArray):
        return QuantArray(select(weight.values), select(weight.scale))
    return select(weight)


def _product(x: jax.Array, weight: Matrix) -> jax.Array:
    """``[rows, in]`` by ``[out, in]`` -> float32."""
    values = stored_values(weight).astype(x.dtype)
    y = jnp.einsum("ri,oi->ro", x, values, preferred_element_type=jnp.float32)
    return y * weight.scale if isinstance(weight, QuantArray) else y


def _activate(gate_up: jax.Array, dtype: jnp.dtype) -> jax.Array:
    gate, up = jnp.split(gate_up, 2, axis=-1)
    return (jax.nn.silu(gate) * up).astype(dtype)


def in_blocks(
    x: jax.Array, gate_up: Matrix, down: Matrix, weights: jax.Array, experts: jax.Array
) -> jax.Array:
    """Pairs sorted by expert, cut into blocks of one expert each, block after block. ``[n, H]`` float32.

    A token's sum runs over its experts in ascending order whatever the batch.
    """
    tokens, top_k = experts.shape
    count = gate_up.shape[0]
    pairs = tokens * top_k
    block = next((size for size in BLOCK_SIZES if size * count <= pairs), BLOCK_SIZES[-1])
    flat = experts.reshape(-1)
    order = jnp.argsort(flat, stable=True)
    sizes = jnp.bincount(flat, length=count)
    ends = jnp.cumsum(sizes)
    block_ends = jnp.cumsum(-(-sizes // block))
    padded_tokens = jnp.pad(order // top_k, (0, block))
    padded_weights = jnp.pad(weights.reshape(-1)[order], (0, block))

    def add_block(index: jax.Array, total: jax.Array) -> jax.Array:
        which = jnp.searchsorted(block_ends, index, side="right")
        blocks_before = block_ends[which] - (-(-sizes[which] // block))
        start = ends[which] - sizes[which] + (index - blocks_before) * block
        rows = lax.dynamic_slice_in_dim(padded_tokens, start, block)
        is_own = start + jnp.arange(block) < ends[which]
        gains = jnp.where(is_own, lax.dynamic_slice_in_dim(padded_weights, start, block), 0.0)
        hidden = _activate(_product(x[rows], expert(gate_up, which)), x.dtype)
        return total.at[rows].add(_product(hidden, expert(down, which)) * gains[:, None])

    total: jax.Array = lax.fori_loop(0, block_ends[-1], add_block, jnp.zeros(x.shape, jnp.float32))
    return total


def one_by_one(
    x: jax.Array, gate_up: Matrix, down: Matrix, weights: jax.Array, experts: jax.Array
) -> jax.Array:
    """Pair after pair, each reading its expert in place: few tokens on a CPU. ``[n, H]`` float32."""
    top_k = experts.shape[1]

    def add_pair(index: jax.Array, total: jax.Array) -> jax.Array:
        token, choice = index // top_k, index % top_k
        which = experts[token, choice]
        row = lax.dynamic_slice_in_dim(x, token, 1)
        hidden = _activate(_product(row, expert(gate_up, which)), x.dtype)
        out = _product(hidden, expert(down, which)) * weights[token, choice]
        old = lax.dynamic_slice_in_dim(total, token, 1)
        return lax.dynamic_update_slice_in_dim(total, old + out, token, 0)

    total: jax.Array = lax.fori_loop(0, experts.size, add_pair, jnp.zeros(x.shape, jnp.float32))
    return total
