"""Paged attention on the CPU: one kernel for decode rows and prefill chunks, float32 pools.

A page lies head by head, so that what one head reads is one piece: its keys transposed ``[K, D, 64]``,
its values ``[K, 64, D]``. The pool's shape says ``[64, K, D]`` as everywhere; nothing else reads inside it.

Scores and weighted values are products of small matrices (``kernels/cpu/tiles.py``). Pages are visited
with an online softmax (Milakov and Gimelshein 2018) inside segments of 256 tokens, and the segments are
merged in order: a decode row spreads its segments over threads, a block of prefill columns passes them
one after another, and both do the same arithmetic. Pages and segments are cut at absolute ordinals, so
an output does not depend on the chunk, the batch or the bucket it came in, bit for bit. Work follows the
context alone, never the pool or the table.
"""

import jax
import jax.numpy as jnp

from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.kernels.cpu import Kernel, call, floats, integers, is_available
from ninfer_jax.kernels.paged_attention.pool import KVPool

SEGMENT_PAGES = 4
SEGMENT = SEGMENT_PAGES * PAGE_SIZE

_KERNEL = Kernel(
    "ninfer_paged_attention",
    "ninfer_jax.kernels.paged_attention.numba_code:paged_attention",
    {
        "q": floats(4),
        "k": floats(4),
        "v": floats(4),
        "k_in": floats(4),
        "v_in": floats(4),
        "tables": integers(2),
        "starts": integers(1),
        "lengths": integers(1),
        "scale": floats(1),
    },
    {"out": floats(4), "k_pool": floats(4), "v_pool": floats(4), "states": floats(5)},
    aliases={"k_pool": "k_in", "v_pool": "v_in"},
)


def supports(pool: KVPool) -> bool:
    """Whether this host can run the kernel and the pool is float32."""
    return pool.k.dtype == jnp.float32 and is_available()


def paged_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    pool: KVPool,
    block_tables: jax.Array,
    starts: jax.Array,
    lengths: jax.Array,
    scale: float,
) -> tuple[jax.Array, KVPool]:
    """See ``api.paged_attention``. Outputs of padding columns are zero."""
    rows, columns, num_heads, head_dim = q.shape
    heads = k.shape[2]
    segments = -(-block_tables.shape[1] // SEGMENT_PAGES) if columns == 1 else 0
    states = (rows, heads, segments, num_heads // heads, head_dim + 2)
    tokens = [x.astype(jnp.float32) for x in (q, k, v)]
    factor = jnp.full(1, scale, jnp.float32)
    out, keys, values, _ = call(
        _KERNEL, *tokens, pool.k, pool.v, block_tables, starts, lengths, factor,
        shapes=[q.shape, pool.k.shape, pool.v.shape, states],
    )  # fmt: skip
    return out.astype(q.dtype), KVPool(keys, values)
