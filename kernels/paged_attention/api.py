"""Paged attention: write this step's keys and values, then attend over everything before them."""

from functools import partial

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.paged_attention import numba_cpu, pallas_triton, reference, xla_cpu
from ninfer_jax.kernels.paged_attention.pool import KVPool


@jax.named_scope("paged_attention")
def paged_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    pool: KVPool,
    block_tables: jax.Array,
    starts: jax.Array,
    lengths: jax.Array,
    *,
    scale: float | None = None,
) -> tuple[jax.Array, KVPool]:
    """Causal grouped-query attention over a paged cache.

    q ``[B, T, N, D]``, k and v ``[B, T, K, D]`` after RoPE · block_tables ``[B, L]`` int32 page ids ·
    starts ``[B]`` int32, cache ordinal of column 0 · lengths ``[B]`` int32 real columns, the rest are
    padding. Column t of row b is written at ordinal ``starts[b] + t`` and sees every ordinal up to its
    own. Padding columns write to the null page; their outputs are finite but mean nothing.

    Returns the outputs ``[B, T, N, D]`` in ``q.dtype`` and the new pool (the old one's buffers, when it
    was donated). ``scale`` defaults to ``D ** -0.5``.
    """
    if q.shape[2] % k.shape[2]:
        raise ValueError(f"paged_attention: {q.shape[2]} query heads over {k.shape[2]} KV heads")
    if scale is None:
        scale = float(q.shape[-1] ** -0.5)
    on_cpu = numba_cpu if numba_cpu.supports(pool) else xla_cpu
    on_cuda = pallas_triton if pallas_triton.supports(q.shape[-1], pool.k.dtype) else reference
    arguments = (q.astype(jnp.float32), k, v, pool, block_tables, starts, lengths)
    out, pool = jax.lax.platform_dependent(
        *arguments,
        cpu=partial(on_cpu.paged_attention, scale=scale),
        cuda=partial(on_cuda.paged_attention, scale=scale),
        default=partial(reference.paged_attention, scale=scale),
    )
    return out.astype(q.dtype), pool
