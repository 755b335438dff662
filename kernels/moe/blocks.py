"""Pairs of token and expert, arranged in blocks of rows that share an expert."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class ExpertBlocks(NamedTuple):
    """tokens ``[blocks, rows]`` the token of each row (0 where there is none) · experts ``[blocks]`` · used
    ``[1]`` how many blocks have rows, the first ones · places ``[n, k]`` the row of each pair, counted over
    all blocks."""

    tokens: jax.Array
    experts: jax.Array
    used: jax.Array
    places: jax.Array


def cut_into_blocks(experts: jax.Array, num_experts: int, rows: int) -> ExpertBlocks:
    """``experts [n, k]`` int32 into blocks of ``rows``. With few pairs each is a block of its own; with
    many they are sorted by expert (in the order of their tokens) and every expert starts a new block."""
    tokens, top_k = experts.shape
    pairs = tokens * top_k
    flat = experts.reshape(-1)
    own = jnp.arange(pairs, dtype=jnp.int32)
    if pairs <= num_experts // 2:
        spread = jnp.broadcast_to((own // top_k)[:, None], (pairs, rows))
        return ExpertBlocks(spread, flat, jnp.array([pairs], jnp.int32), (own * rows).reshape(experts.shape))
    sizes = jnp.bincount(flat, length=num_experts)
    block_ends = jnp.cumsum(-(-sizes // rows))
    first_rows = (block_ends - (-(-sizes // rows))) * rows
    order = jnp.argsort(flat, stable=True)
    rank = own - (jnp.cumsum(sizes) - sizes)[flat[order]]  # of each sorted pair within its expert
    places = (first_rows[flat[order]] + rank).astype(jnp.int32)
    num_blocks = min(pairs, pairs // rows + min(num_experts, pairs))
    rows_used = jnp.zeros(num_blocks * rows, jnp.int32).at[places].set(order // top_k)
    of_block = jnp.searchsorted(block_ends, jnp.arange(num_blocks), side="right")
    return ExpertBlocks(
        tokens=rows_used.reshape(num_blocks, rows),
        experts=jnp.minimum(of_block, num_experts - 1).astype(jnp.int32),
        used=block_ends[-1:].astype(jnp.int32),
        places=jnp.zeros(pairs, jnp.int32).at[order].set(places).reshape(experts.shape),
    )
