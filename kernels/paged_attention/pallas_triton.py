"""Paged attention on NVIDIA GPUs: one Pallas (Triton) kernel that walks a block table.

A program owns some query rows of one head and reads the pool page by page with an online softmax (Milakov
and Gimelshein 2018), so nothing the size of a context is gathered or written. In decode the rows are the
query heads that share a KV head, and the context is split among programs (flash decoding); in prefill they
are columns of one query head.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.kernels.paged_attention.pool import KVPool
from ninfer_jax.kernels.paged_attention.reference import write_pages

NAME = "paged_attention"
MIN_ROWS = 16
"""Rows of the smallest matrix product; unused ones are padding."""
PREFILL_ROWS = 64
TILE_BYTES = 16384
"""Of keys (and of values) read at once: two stages of both fit the shared memory of every target."""
PAGES_PER_SPLIT = 4
MAX_SPLITS = 32
LOWEST = -1e30
_struct: Any = jax.ShapeDtypeStruct


def supports(head_dim: int, dtype: Any) -> bool:
    """Triton loads powers of two; other head dims take the plain form."""
    is_power = head_dim >= 16 and head_dim & (head_dim - 1) == 0
    return is_power and jnp.dtype(dtype) in (jnp.bfloat16, jnp.float32)


def paged_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    pool: KVPool,
    block_tables: jax.Array,
    starts: jax.Array,
    lengths: jax.Array,
    scale: float,
    interpret: bool = False,
) -> tuple[jax.Array, KVPool]:
    """See ``api.paged_attention``; float32 outputs. Outputs of padding columns are finite."""
    pool = write_pages(pool, k, v, block_tables, starts, lengths)
    rows, columns, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[2]
    q = (q * scale).astype(pool.k.dtype)
    attend = functools.partial(
        _attend, pool=pool, tables=block_tables, starts=starts, lengths=lengths, interpret=interpret
    )
    if columns == 1:
        group = num_heads // num_kv_heads
        padding = -group % MIN_ROWS
        grouped = q.reshape(rows, num_kv_heads, group, head_dim)
        grouped = jnp.pad(grouped, ((0, 0), (0, 0), (0, padding), (0, 0)))
        splits = min(MAX_SPLITS, max(1, block_tables.shape[1] // PAGES_PER_SPLIT))
        out = attend(grouped, block_rows=group + padding, splits=splits, rows_are_columns=False)
        return out[:, :, :group].reshape(q.shape), pool
    block = min(PREFILL_ROWS, max(MIN_ROWS, pl.next_power_of_2(columns)))
    by_head = jnp.pad(jnp.swapaxes(q, 1, 2), ((0, 0), (0, 0), (0, -columns % block), (0, 0)))
    out = attend(by_head, block_rows=block, splits=1, rows_are_columns=True)
    return jnp.swapaxes(out[:, :, :columns], 1, 2), pool


def _attend(
    q: jax.Array,
    *,
    pool: KVPool,
    tables: jax.Array,
    starts: jax.Array,
    lengths: jax.Array,
    block_rows: int,
    splits: int,
    rows_are_columns: bool,
    interpret: bool,
) -> jax.Array:
    """q ``[B, heads, R, D]`` scaled -> float32 of the same shape. ``heads`` is a multiple of the KV heads;
    row r of a head is column r of its sequence, or (decode) every row is column 0."""
    batch, heads, num_rows, head_dim = q.shape
    kv_group = heads // pool.k.shape[2]
    tile = min(PAGE_SIZE, max(16, TILE_BYTES // (head_dim * pool.k.dtype.itemsize)))
    grid = (batch * heads, num_rows // block_rows, splits)
    kernel = functools.partial(
        _kernel, heads=heads, kv_group=kv_group, tile=tile, rows_are_columns=rows_are_columns
    )
    partial_shape = (splits, batch * heads, num_rows)

    def by_split(*size: int) -> pl.BlockSpec:
        return pl.BlockSpec(
            (None, None, block_rows, *size),
            lambda head, block, split: (split, head, block, *(0 for _ in size)),
        )

    out, maxima, sums = pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=[
            pl.BlockSpec((None, block_rows, head_dim), lambda head, block, split: (head, block, 0)),
            *(_whole(array) for array in (pool.k, pool.v, tables, starts, lengths)),
        ],
        out_specs=[by_split(head_dim), by_split(), by_split()],
        out_shape=[
            _struct((*partial_shape, head_dim), jnp.float32),
            _struct(partial_shape, jnp.float32),
            _struct(partial_shape, jnp.float32),
        ],
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name=NAME,
    )(q.reshape(batch * heads, num_rows, head_dim), pool.k, pool.v, tables, starts, lengths)
    return _combine(out, maxima, sums).reshape(q.shape)


def _whole(array: jax.Array) -> pl.BlockSpec:
    """An operand that every program reads where it wants to."""
    return pl.BlockSpec(array.shape, lambda *_: (0,) * array.ndim)


def _combine(out: jax.Array, maxima: jax.Array, sums: jax.Array) -> jax.Array:
    """Partial sums over splits ``[S, heads, R, D]`` with their maxima and totals -> ``[heads, R, D]``."""
    weights = jnp.exp(maxima - jnp.max(maxima, axis=0))
    total = jnp.sum(weights * sums, axis=0)
    return jnp.sum(weights[..., None] * out, axis=0) / jnp.maximum(total, 1e-30)[..., None]


def _kernel(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    table_ref: Any,
    starts_ref: Any,
    lengths_ref: Any,
    out_ref: Any,
    maxima_ref: Any,
    sums_ref: Any,
    *,
    heads: int,
    kv_group: int,
    tile: int,
    rows_are_columns: bool,
) -> None:
    block_rows, head_dim = q_ref.shape
    row, head = pl.program_id(0) // heads, pl.program_id(0) % heads
    kv_head = head // kv_group
    start, length = starts_ref[row], lengths_ref[row]
    columns = pl.program_id(1) * block_rows + jnp.arange(block_rows)
    if not rows_are_columns:
        columns = jnp.zeros_like(columns)
    last = start + columns  # the last ordinal that a row may see
    context = start + jnp.minimum(length, (pl.program_id(1) + 1) * block_rows)
    tiles = pl.cdiv(context, tile)
    share = pl.cdiv(tiles, pl.num_programs(2))
    low = pl.program_id(2) * share
    q = q_ref[...]

    def read(index: Any, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        out, maximum, total = carry
        page = table_ref[row, index * tile // PAGE_SIZE]
        offsets = pl.ds(index * tile % PAGE_SIZE, tile)
        scores = _dot(q, k_ref[page, offsets, kv_head, :].T)
        ordinals = index * tile + jnp.arange(tile)
        scores = jnp.where(ordinals[None, :] <= last[:, None], scores, LOWEST)
        new_maximum = jnp.maximum(maximum, jnp.max(scores, axis=1))
        correction = jnp.exp(maximum - new_maximum)
        weights = jnp.exp(scores - new_maximum[:, None])
        values = v_ref[page, offsets, kv_head, :]
        out = out * correction[:, None] + _dot(weights.astype(values.dtype), values)
        return out, new_maximum, total * correction + jnp.sum(weights, axis=1)

    empty = (
        jnp.zeros((block_rows, head_dim), jnp.float32),
        jnp.full((block_rows,), LOWEST, jnp.float32),
        jnp.zeros((block_rows,), jnp.float32),
    )
    out, maximum, total = jax.lax.fori_loop(low, jnp.minimum(low + share, tiles), read, empty)
    out_ref[...] = out
    maxima_ref[...] = maximum
    sums_ref[...] = total


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Float32 sums; float32 operands are not rounded to TF32."""
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jax.lax.dot_general(
        a, b, (((1,), (0,)), ((), ())), precision=precision, preferred_element_type=jnp.float32
    )
