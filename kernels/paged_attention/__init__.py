"""Causal attention over a paged key-value cache."""

from ninfer_jax.config import NULL_PAGE, PAGE_SIZE
from ninfer_jax.kernels.paged_attention.api import paged_attention
from ninfer_jax.kernels.paged_attention.pool import KVPool, allocate_pool

__all__ = ["NULL_PAGE", "PAGE_SIZE", "KVPool", "allocate_pool", "paged_attention"]
