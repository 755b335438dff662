"""Paged attention at the shapes of the models: decode of few rows over a long context, and prefill chunks."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.config import PAGE_SIZE, pages_for
from ninfer_jax.kernels.paged_attention import KVPool, pallas_triton, reference
from ninfer_jax.models.qwen3_5_config import Qwen35Config
from profiles.device.kernel import PALLAS, XLA, Kernel
from profiles.device.sizes import Grid

MAX_TABLES = 64
TOLERANCE = 2e-2
"""Queries and probabilities are rounded to bfloat16, which has eight bits."""


class Inputs(NamedTuple):
    """One step, and ``tables [n, B, L]``: call i reads the pages of table ``i % n``."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    tables: jax.Array
    starts: jax.Array
    lengths: jax.Array


def kernels(name: str, config: Qwen35Config, grid: Grid, *, interpret: bool) -> list[Kernel]:
    """The calls of ``grid`` with this model's heads."""
    decode = [
        _kernel(f"attention decode B={rows}, context {context:,}, {name}", config, grid, rows, 1, context - 1)
        for rows, context in grid.decode
    ]
    prefill = [
        _kernel(f"attention prefill {columns:,} at {start:,}, {name}", config, grid, 1, columns, start)
        for columns, start in grid.prefill
    ]
    return [_with_pallas(kernel, config, interpret=interpret) for kernel in (*decode, *prefill)]


def _kernel(label: str, config: Qwen35Config, grid: Grid, rows: int, columns: int, start: int) -> Kernel:
    heads, kv_heads, head_dim = config.num_heads, config.num_kv_heads, config.head_dim
    context = start + columns
    width = pages_for(max(context, grid.max_context))
    live_pages = rows * pages_for(context)
    token_bytes = 2 * kv_heads * head_dim * 2
    num_tables = max(1, min(MAX_TABLES, grid.rotated // (live_pages * PAGE_SIZE * token_bytes)))

    def make() -> tuple[Inputs, KVPool]:
        keys = jax.random.split(jax.random.key(0), 5)
        step = (rows, columns)
        pool_shape = (1 + num_tables * live_pages, PAGE_SIZE, kv_heads, head_dim)
        pool = KVPool(*(jax.random.normal(key, pool_shape, jnp.bfloat16) for key in keys[:2]))
        q, k, v = (
            jax.random.normal(key, (*step, count, head_dim), jnp.bfloat16)
            for key, count in zip(keys[2:], (heads, kv_heads, kv_heads), strict=True)
        )
        order = 1 + np.random.default_rng(0).permutation(num_tables * live_pages)
        tables = np.zeros((num_tables, rows, width), np.int32)
        tables[:, :, : pages_for(context)] = order.reshape(num_tables, rows, -1)
        return Inputs(
            q.astype(jnp.float32),
            k,
            v,
            jnp.asarray(tables),
            jnp.full(rows, start, jnp.int32),
            jnp.full(rows, columns, jnp.int32),
        ), pool

    seen = sum(start + column + 1 for column in range(columns))
    return Kernel(
        name=label,
        make=make,
        forms={XLA: partial(_call, reference.paged_attention, head_dim**-0.5)},
        reference=partial(_call, reference.paged_attention, head_dim**-0.5),
        tolerance=TOLERANCE,
        nbytes=rows * (context * token_bytes + columns * heads * head_dim * (4 + 4)),
        operations=4 * rows * seen * heads * head_dim,
    )


def _with_pallas(kernel: Kernel, config: Qwen35Config, *, interpret: bool) -> Kernel:
    if not pallas_triton.supports(config.head_dim, jnp.bfloat16):
        return kernel
    form = partial(pallas_triton.paged_attention, interpret=interpret)
    call = partial(_call, form, config.head_dim**-0.5)
    untimed = (PALLAS,) if interpret else ()
    return replace(kernel, forms={PALLAS: call, **kernel.forms}, untimed=untimed)


def _call(
    form: Any, scale: float, inputs: Inputs, pool: KVPool, index: jax.Array
) -> tuple[jax.Array, KVPool]:
    table = inputs.tables[index % inputs.tables.shape[0]]
    out, pool = form(inputs.q, inputs.k, inputs.v, pool, table, inputs.starts, inputs.lengths, scale=scale)
    return out, pool
