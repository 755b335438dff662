"""Paged attention in the plainest form: scatter, gather every page of the table, mask, softmax."""

import jax
import jax.numpy as jnp

from ninfer_jax.config import NULL_PAGE, PAGE_SIZE
from ninfer_jax.kernels.paged_attention.pool import KVPool


def write_pages(
    pool: KVPool, k: jax.Array, v: jax.Array, block_tables: jax.Array, starts: jax.Array, lengths: jax.Array
) -> KVPool:
    """Put column t of row b at cache ordinal ``starts[b] + t``; padding columns go to the null page."""
    columns = jnp.arange(k.shape[1])
    ordinals = starts[:, None] + columns  # [B, T]
    entry = jnp.minimum(ordinals // PAGE_SIZE, block_tables.shape[1] - 1)
    is_real = columns < lengths[:, None]
    pages = jnp.where(is_real, jnp.take_along_axis(block_tables, entry, axis=1), NULL_PAGE)
    offsets = ordinals % PAGE_SIZE
    return KVPool(
        pool.k.at[pages, offsets].set(k.astype(pool.k.dtype)),
        pool.v.at[pages, offsets].set(v.astype(pool.v.dtype)),
    )


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
    """See ``api.paged_attention``. Softmax in float32; work grows with the width of the tables."""
    rows, columns, _, head_dim = q.shape
    pool = write_pages(pool, k, v, block_tables, starts, lengths)
    num_kv_heads = pool.k.shape[2]
    keys = pool.k[block_tables].reshape(rows, -1, num_kv_heads, head_dim).astype(jnp.float32)
    values = pool.v[block_tables].reshape(rows, -1, num_kv_heads, head_dim).astype(jnp.float32)
    grouped = q.astype(jnp.float32).reshape(rows, columns, num_kv_heads, -1, head_dim)
    scores = jnp.einsum("btkgd,bskd->bkgts", grouped, keys) * scale
    last = starts[:, None] + jnp.arange(columns)  # [B, T], the last ordinal that a column may see
    visible = jnp.arange(keys.shape[1]) <= last[:, :, None]
    scores = jnp.where(visible[:, None, None], scores, -jnp.inf)
    out = jnp.einsum("bkgts,bskd->btkgd", jax.nn.softmax(scores, axis=-1), values)
    return out.reshape(q.shape).astype(q.dtype), pool
