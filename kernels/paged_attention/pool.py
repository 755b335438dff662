"""The paged key-value cache of one attention layer."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ninfer_jax.config import PAGE_SIZE


class KVPool(NamedTuple):
    """One attention layer's paged cache: k and v ``[P, 64, K, D]`` (RoPE is applied before the write).

    Pages may be copied whole. What is inside one is for the form that wrote it to read: ``numba_cpu`` lays
    it head by head.
    """

    k: jax.Array
    v: jax.Array


def allocate_pool(num_pages: int, num_kv_heads: int, head_dim: int, dtype: DTypeLike) -> KVPool:
    """An empty pool, page 0 (the null page) included in ``num_pages``."""
    shape = (num_pages, PAGE_SIZE, num_kv_heads, head_dim)
    return KVPool(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))
