"""Paged attention for XLA:CPU: loops whose trip counts come from the real lengths.

Nothing here is as wide as the block table or as large as the pool: one row's live pages are visited a
block at a time with an online softmax (Milakov and Gimelshein 2018; FlashAttention's recurrence), so
the cost follows the context alone. Pools are float32; they are updated in place by
``dynamic_update_slice``, the one form of update that XLA:CPU never copies for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import lax

from ninfer_jax.config import NULL_PAGE, PAGE_SIZE
from ninfer_jax.kernels.paged_attention.pool import KVPool

T = TypeVar("T")

MAX_DECODE_COLUMNS = 8
"""Steps up to this wide write token by token and use the block-diagonal form."""

DECODE_BLOCK = 2
PREFILL_BLOCK = 4
"""Pages visited in one turn of the loop."""

_MASKED = -1e30
"""Finite, so that a block with nothing visible leaves the running maximum a number."""


class _Row(NamedTuple):
    """One row's view: table ``[L]`` page ids, start and length scalars int32."""

    table: jax.Array
    start: jax.Array
    length: jax.Array


class _Softmax(NamedTuple):
    """Running softmax of R query rows: maximum ``[R]``, sum of exponents ``[R]``, weighted values
    ``[R, ...]`` not yet divided by the sum."""

    maximum: jax.Array
    total: jax.Array
    values: jax.Array


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
    """See ``api.paged_attention``."""
    rows, columns = q.shape[:2]
    is_decode = columns <= MAX_DECODE_COLUMNS
    attend = _attend_decode if is_decode else _attend_prefill
    write = _write_tokens if is_decode else _write_pages
    q = q.astype(jnp.float32) * scale
    k, v = k.astype(pool.k.dtype), v.astype(pool.v.dtype)
    if rows == 1:
        row = _Row(block_tables[0], starts[0], lengths[0])
        pool = write(pool, k[0], v[0], row)
        return attend(q[0], pool, row)[None], pool

    def write_row(b: jax.Array, pool: KVPool) -> KVPool:
        return write(pool, k[b], v[b], _Row(block_tables[b], starts[b], lengths[b]))

    def attend_row(b: jax.Array, out: jax.Array) -> jax.Array:
        return out.at[b].set(attend(q[b], pool, _Row(block_tables[b], starts[b], lengths[b])))

    pool = _loop(rows, write_row, pool)
    return _loop(rows, attend_row, jnp.zeros(q.shape, jnp.float32)), pool


def _write_tokens(pool: KVPool, k: jax.Array, v: jax.Array, row: _Row) -> KVPool:
    """Put each of a few columns ``[T, K, D]`` at its place; padding goes to the null page."""
    for column in range(k.shape[0]):
        ordinal = row.start + column
        page = jnp.where(column < row.length, row.table[ordinal // PAGE_SIZE], NULL_PAGE)
        index = (page, ordinal % PAGE_SIZE, 0, 0)
        pool = KVPool(
            lax.dynamic_update_slice(pool.k, k[None, column : column + 1], index),
            lax.dynamic_update_slice(pool.v, v[None, column : column + 1], index),
        )
    return pool


def _write_pages(pool: KVPool, k: jax.Array, v: jax.Array, row: _Row) -> KVPool:
    """Merge many columns ``[T, K, D]`` into the pages that they touch, a page at a time."""
    end = row.start + row.length
    padding = ((PAGE_SIZE, PAGE_SIZE), (0, 0), (0, 0))
    padded = KVPool(jnp.pad(k, padding), jnp.pad(v, padding))

    def write_page(index: jax.Array, pool: KVPool) -> KVPool:
        ordinals = index * PAGE_SIZE + jnp.arange(PAGE_SIZE)
        is_new = ((ordinals >= row.start) & (ordinals < end))[:, None, None]
        place = (row.table[index], 0, 0, 0)

        def merge(pages: jax.Array, columns: jax.Array) -> jax.Array:
            new = lax.dynamic_slice_in_dim(columns, (index + 1) * PAGE_SIZE - row.start, PAGE_SIZE)
            old = lax.dynamic_slice(pages, place, (1, *pages.shape[1:]))[0]
            return lax.dynamic_update_slice(pages, jnp.where(is_new, new, old)[None], place)

        return KVPool(merge(pool.k, padded.k), merge(pool.v, padded.v))

    return _loop(-(-end // PAGE_SIZE), write_page, pool, first=row.start // PAGE_SIZE)


def _read_block(pages: jax.Array, table: jax.Array, block: jax.Array, size: int) -> jax.Array:
    """``size`` pages of a pool as ``[size * 64, K * D]``; past the table's end, its last page.

    The page is reshaped after it is read: a reshape of the pool itself makes XLA update it twice.
    """
    last = table.shape[0] - 1
    entries = [table[jnp.minimum(block * size + i, last)] for i in range(size)]
    read = [lax.dynamic_slice(pages, (page, 0, 0, 0), (1, *pages.shape[1:])) for page in entries]
    return jnp.concatenate(read).reshape(size * PAGE_SIZE, -1)


def _attend_decode(q: jax.Array, pool: KVPool, row: _Row) -> jax.Array:
    """A few columns ``[T, N, D]``: every query head in one dot with a whole page ``[64, K * D]``.

    Queries are laid out block-diagonally, ``[T * N, K * D]`` with zeros outside the head's own KV
    head. That multiplies by zeros K - 1 times in K, but is two plain matrix products a page instead of
    2 K small ones, which XLA:CPU runs as naive loops.
    """
    columns, num_heads, head_dim = q.shape
    num_kv_heads = pool.k.shape[2]
    group = num_heads // num_kv_heads
    own = jnp.arange(num_heads)[:, None] // group == jnp.arange(num_kv_heads)  # [N, K]
    own = jnp.tile(own, (columns, 1))[:, :, None].astype(q.dtype)  # [T * N, K, 1]
    diagonal = (q.reshape(-1, 1, head_dim) * own).reshape(columns * num_heads, -1)
    last = row.start + jnp.repeat(jnp.arange(columns), num_heads)  # last ordinal visible to each query
    size = DECODE_BLOCK * PAGE_SIZE

    def visit(block: jax.Array, state: _Softmax) -> _Softmax:
        k = _read_block(pool.k, row.table, block, DECODE_BLOCK)
        v = _read_block(pool.v, row.table, block, DECODE_BLOCK)
        visible = block * size + jnp.arange(size) <= last[:, None]
        weights, state = _advance(state, jnp.where(visible, diagonal @ k.T, _MASKED))
        return state._replace(values=state.values + weights @ v)

    state = _loop(-(-(row.start + row.length) // size), visit, _empty(diagonal))
    out = (state.values.reshape(-1, num_kv_heads, head_dim) * own).sum(1) / _positive(state.total)[:, None]
    return out.reshape(q.shape)


def _attend_prefill(q: jax.Array, pool: KVPool, row: _Row) -> jax.Array:
    """Many columns ``[T, N, D]``: for each KV head one dot of its queries ``[T * G, D]`` with a block."""
    columns, num_heads, head_dim = q.shape
    num_kv_heads = pool.k.shape[2]
    group = num_heads // num_kv_heads
    size = PREFILL_BLOCK * PAGE_SIZE
    last = row.start + jnp.repeat(jnp.arange(columns), group)

    def visit_head(head: int, block: jax.Array, k: jax.Array, v: jax.Array, state: _Softmax) -> _Softmax:
        part = slice(head * head_dim, (head + 1) * head_dim)
        queries = q[:, head * group : (head + 1) * group].reshape(-1, head_dim)
        visible = block * size + jnp.arange(size) <= last[:, None]
        weights, state = _advance(state, jnp.where(visible, queries @ k[:, part].T, _MASKED))
        return state._replace(values=state.values + weights @ v[:, part])

    def visit(block: jax.Array, states: tuple[_Softmax, ...]) -> tuple[_Softmax, ...]:
        k = _read_block(pool.k, row.table, block, PREFILL_BLOCK)
        v = _read_block(pool.v, row.table, block, PREFILL_BLOCK)
        return tuple(visit_head(head, block, k, v, state) for head, state in enumerate(states))

    empty = _empty(jnp.zeros((columns * group, head_dim), q.dtype))
    blocks = -(-(row.start + row.length) // size)
    states = _loop(blocks, visit, (empty,) * num_kv_heads)
    heads = [
        (state.values / _positive(state.total)[:, None]).reshape(columns, group, head_dim) for state in states
    ]
    return jnp.concatenate(heads, axis=1)


def _loop(end: Any, body: Callable[[jax.Array, T], T], carry: T, first: Any = 0) -> T:
    """``lax.fori_loop`` with its type."""
    return cast(T, lax.fori_loop(first, end, body, carry))


def _positive(total: jax.Array) -> jax.Array:
    """A wholly padded row has seen nothing: its output becomes zero, not NaN."""
    return jnp.maximum(total, 1e-30)


def _empty(values: jax.Array) -> _Softmax:
    rows = values.shape[0]
    return _Softmax(jnp.full(rows, _MASKED), jnp.zeros(rows), jnp.zeros_like(values))


def _advance(state: _Softmax, scores: jax.Array) -> tuple[jax.Array, _Softmax]:
    """Exponents of a block of scores ``[R, S]``, and the state rescaled to the new maximum."""
    maximum = jnp.maximum(state.maximum, scores.max(axis=1))
    weights = jnp.exp(scores - maximum[:, None])
    decay = jnp.exp(state.maximum - maximum)
    total = state.total * decay + weights.sum(axis=1)
    return weights, _Softmax(maximum, total, state.values * decay[:, None])
