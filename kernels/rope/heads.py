"""A fused projection as heads."""

import itertools

import jax
import jax.numpy as jnp


def split_heads(fused: jax.Array, head_dim: int, *counts: int) -> list[jax.Array]:
    """A fused projection ``[B, T, rows]`` as ``[B, T, count, D]`` for each of ``counts``, in their order."""
    heads = fused.reshape(*fused.shape[:2], sum(counts), head_dim)
    return jnp.split(heads, list(itertools.accumulate(counts[:-1])), axis=2)
