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

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.kernels.cpu import Buffer, is_available, register, struct
from ninfer_jax.kernels.paged_attention.pool import KVPool

COLUMNS = 16
"""Columns of one prefill task: enough to repay reading a page, few enough to share among threads."""

SEGMENT_PAGES = 4
SEGMENT = SEGMENT_PAGES * PAGE_SIZE

NAME = "ninfer_paged_attention"


@functools.cache
def _softmax() -> tuple[Any, Any, Any]:
    """(clear, attend_page, merge): an empty softmax state, one more page in it, and two states made one.

    A state of m queries is a matrix ``[m, D + 2]``: the weighted values, not yet divided by the sum of
    exponents, then that sum, then the maximum score.
    """
    import numba

    from ninfer_jax.kernels.cpu import tiles
    from ninfer_jax.kernels.cpu.intrinsics import exp
    from ninfer_jax.kernels.cpu.vectors import LANES

    zero, lowest = np.float32(0), np.float32(-1e30)
    add_matmul, softmax_row = tiles.add_matmul, tiles.softmax_row(PAGE_SIZE // LANES)

    @numba.njit
    def clear(state: Any) -> None:
        last = state.shape[1] - 1
        state[:, :last] = zero
        state[:, last] = lowest

    @numba.njit
    def attend_page(
        queries: Any, keys: int, values: int, next_keys: int, first: int, group: int, num_keys: int,
        scores: Any, state: Any,
    ) -> None:  # fmt: skip
        """Add a page to ``state``. Query m sees the page's first ``first + m // group`` tokens; pages lie
        at the addresses ``keys`` and ``values``, each read from memory while the one before it is used."""
        rows, head_dim = queries.shape
        scores[:] = zero
        add_matmul(
            queries.ctypes.data, queries.strides[0], rows, keys, 4 * PAGE_SIZE, head_dim,
            scores.ctypes.data, scores.strides[0], PAGE_SIZE, values,
        )  # fmt: skip
        for m in range(rows):
            visible = min(first + m // group, num_keys)
            if visible <= 0:
                scores[m] = zero
                continue
            before = state[m, head_dim + 1]
            place = scores.ctypes.data + m * scores.strides[0]
            maximum, total = softmax_row(place, visible, before)
            if maximum > before:
                correction = exp(before - maximum)
                for d in range(head_dim + 1):
                    state[m, d] *= correction
                state[m, head_dim + 1] = maximum
            state[m, head_dim] += total
        add_matmul(
            scores.ctypes.data, scores.strides[0], rows, values, 4 * head_dim, num_keys,
            state.ctypes.data, state.strides[0], head_dim, next_keys,
        )  # fmt: skip

    @numba.njit
    def merge(state: Any, other: Any) -> None:
        """Add the later state ``other`` to ``state``."""
        last = state.shape[1] - 1
        for m in range(state.shape[0]):
            maximum = max(state[m, last], other[m, last])
            ours, theirs = exp(state[m, last] - maximum), exp(other[m, last] - maximum)
            for d in range(last):
                state[m, d] = state[m, d] * ours + other[m, d] * theirs
            state[m, last] = maximum

    return clear, attend_page, merge


@functools.cache
def _queries() -> tuple[Any, Any, Any]:
    """(gather, attend_segment, scatter): a block of columns as a matrix of queries, one segment for it, and
    its outputs. Query m belongs to column ``low + m // group`` and head ``first_head + m % group``."""
    import numba

    clear, attend_page, _ = _softmax()

    @numba.njit
    def gather(q: Any, low: int, high: int, first_head: int, group: int) -> Any:
        queries = np.empty(((high - low) * group, q.shape[2]), np.float32)
        for m in range(queries.shape[0]):
            for d in range(queries.shape[1]):
                queries[m, d] = q[low + m // group, first_head + m % group, d]
        return queries

    @numba.njit
    def attend_segment(
        queries: Any, k_pool: Any, v_pool: Any, table: Any, head: int, segment: int, visible: int, end: int,
        group: int, scores: Any, state: Any,
    ) -> None:  # fmt: skip
        """Make ``state`` that of one segment of a row which ends at ordinal ``end``. Query m sees the row's
        first ``visible + m // group`` tokens."""
        heads, head_dim = k_pool.shape[2], k_pool.shape[3]
        piece = 4 * PAGE_SIZE * head_dim
        keys, values = k_pool.ctypes.data, v_pool.ctypes.data
        clear(state)
        for index in range(segment * SEGMENT_PAGES, (segment + 1) * SEGMENT_PAGES):
            first = index * PAGE_SIZE
            if first >= end:
                break
            place = (np.int64(table[index]) * heads + head) * piece
            later = (np.int64(table[min(index + 1, len(table) - 1)]) * heads + head) * piece
            attend_page(
                queries, keys + place, values + place, keys + later,
                visible - first, group, min(end - first, PAGE_SIZE), scores, state,
            )  # fmt: skip

    @numba.njit
    def scatter(state: Any, low: int, first_head: int, group: int, out: Any) -> None:
        head_dim = out.shape[2]
        for m in range(state.shape[0]):
            inverse = np.float32(1) / state[m, head_dim]
            for d in range(head_dim):
                out[low + m // group, first_head + m % group, d] = state[m, d] * inverse

    return gather, attend_segment, scatter


@functools.cache
def _kernel() -> tuple[Any, Any, Any, Any]:
    """(prepare, count, run, finish)."""
    import numba

    zero = np.float32(0)
    clear, _, merge = _softmax()
    gather, attend_segment, scatter = _queries()

    @numba.njit
    def num_segments(starts: Any, lengths: Any) -> int:
        """Of the longest row."""
        return (np.max(starts + lengths) + SEGMENT - 1) // SEGMENT

    @numba.njit
    def prepare(
        q: Any, k: Any, v: Any, k_in: Any, v_in: Any, tables: Any, starts: Any, lengths: Any,
        out: Any, k_pool: Any, v_pool: Any, states: Any,
    ) -> None:  # fmt: skip
        """Write the real columns into their pages, before anybody reads them."""
        pages, _, heads, head_dim = k_pool.shape
        keys = k_pool.reshape(pages, heads, head_dim, PAGE_SIZE)
        values = v_pool.reshape(pages, heads, PAGE_SIZE, head_dim)
        for row in range(q.shape[0]):
            for column in range(lengths[row]):
                ordinal = starts[row] + column
                page, place = tables[row, ordinal // PAGE_SIZE], ordinal % PAGE_SIZE
                for head in range(heads):
                    for d in range(head_dim):
                        keys[page, head, d, place] = k[row, column, head, d]
                        values[page, head, place, d] = v[row, column, head, d]

    @numba.njit
    def count(
        q: Any, k: Any, v: Any, k_in: Any, v_in: Any, tables: Any, starts: Any, lengths: Any,
        out: Any, k_pool: Any, v_pool: Any, states: Any,
    ) -> int:  # fmt: skip
        parts = (q.shape[1] + COLUMNS - 1) // COLUMNS if q.shape[1] > 1 else num_segments(starts, lengths)
        return q.shape[0] * k.shape[2] * parts

    @numba.njit
    def run(
        task: int, q: Any, k: Any, v: Any, k_in: Any, v_in: Any, tables: Any, starts: Any, lengths: Any,
        out: Any, k_pool: Any, v_pool: Any, states: Any,
    ) -> None:  # fmt: skip
        heads, head_dim = k.shape[2], k.shape[3]
        group = q.shape[2] // heads
        head, row, part = task % heads, task // heads % q.shape[0], task // heads // q.shape[0]
        start, length, table = starts[row], lengths[row], tables[row]
        is_decode = q.shape[1] == 1
        # The latest columns have the most to read: they go first, so that no thread ends alone.
        low = 0 if is_decode else ((q.shape[1] - 1) // COLUMNS - part) * COLUMNS
        high = min(low + COLUMNS, length)
        end = start + high
        segment, last_segment = 0, (end + SEGMENT - 1) // SEGMENT
        if is_decode:
            segment, last_segment = part, min(part + 1, last_segment)
        if high <= low or segment >= last_segment:
            return
        queries = gather(q[row], low, high, head * group, group)
        scores = np.empty((queries.shape[0], PAGE_SIZE), np.float32)
        total, state = np.empty((2, queries.shape[0], head_dim + 2), np.float32)
        clear(total)
        for number in range(segment, last_segment):
            attend_segment(
                queries, k_pool, v_pool, table, head, number, start + low + 1, end, group, scores, state
            )
            if is_decode:
                states[row, head, number] = state
            else:
                merge(total, state)
        if not is_decode:
            scatter(total, low, head * group, group, out[row])

    @numba.njit
    def finish(
        q: Any, k: Any, v: Any, k_in: Any, v_in: Any, tables: Any, starts: Any, lengths: Any,
        out: Any, k_pool: Any, v_pool: Any, states: Any,
    ) -> None:  # fmt: skip
        """Padding columns become zero; the segments of decode rows are merged."""
        heads, head_dim = k.shape[2], k.shape[3]
        group = q.shape[2] // heads
        for row in range(q.shape[0]):
            for column in range(lengths[row], q.shape[1]):
                out[row, column] = zero
        if q.shape[1] > 1:
            return
        total = np.empty((group, head_dim + 2), np.float32)
        for row in range(q.shape[0]):
            if lengths[row] == 0:
                continue
            for head in range(heads):
                clear(total)
                for segment in range((starts[row] + SEGMENT) // SEGMENT):
                    merge(total, states[row, head, segment])
                scatter(total, 0, head * group, group, out[row])

    return prepare, count, run, finish


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
    prepare, count, run, finish = _kernel()
    float4, table, vector = Buffer(np.float32, 4), Buffer(np.int32, 2), Buffer(np.int32, 1)
    register(
        NAME,
        prepare=prepare,
        count=count,
        run=run,
        finish=finish,
        operands=(*(float4,) * 5, table, vector, vector),
        results=(*(float4,) * 3, Buffer(np.float32, 5)),
    )
    rows, columns, num_heads, head_dim = q.shape
    heads = k.shape[2]
    segments = -(-block_tables.shape[1] // SEGMENT_PAGES) if columns == 1 else 0
    states = (rows, heads, segments, num_heads // heads, head_dim + 2)
    shapes = [struct(shape, jnp.float32) for shape in (q.shape, pool.k.shape, pool.v.shape, states)]
    call: Any = jax.ffi.ffi_call(NAME, shapes, input_output_aliases={3: 1, 4: 2})
    queries = q.astype(jnp.float32) * scale
    k, v = k.astype(jnp.float32), v.astype(jnp.float32)
    out, keys, values, _ = call(queries, k, v, pool.k, pool.v, block_tables, starts, lengths)
    return out.astype(q.dtype), KVPool(keys, values)
