"""The machine code of paged attention. Compiled functions see the operands of ``numba_cpu.py`` as ``a``."""

from typing import Any

import numba
import numpy as np

from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.kernels.cpu.intrinsics import exp, floats_at, prefetch_once
from ninfer_jax.kernels.cpu.tasks import Functions
from ninfer_jax.kernels.cpu.tiles import add_matmul, softmax_row
from ninfer_jax.kernels.cpu.vectors import LANES
from ninfer_jax.kernels.paged_attention.numba_cpu import SEGMENT, SEGMENT_PAGES

COLUMNS = 16
"""Columns of one prefill task: enough to repay reading a page, few enough to share among threads."""

FIRST_BYTES = 4096
"""Of a segment's first page, asked for at once; what follows is asked for while something is computed."""

zero, lowest = np.float32(0), np.float32(-1e30)
softmax_page = softmax_row(PAGE_SIZE // LANES)

# A softmax state of m queries is a matrix [m, D + 2]: the weighted values, not yet divided by the sum of
# exponents, then that sum, then the maximum score. Query m of a block belongs to column ``low + m // group``
# and head ``first_head + m % group``.


@numba.njit
def clear(state: Any) -> None:
    """The state of no page."""
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
        maximum, total = softmax_page(place, visible, before)
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


@numba.njit
def gather(q: Any, scale: Any, low: int, high: int, first_head: int, group: int) -> Any:
    """A block of columns as a matrix of queries."""
    queries = np.empty(((high - low) * group, q.shape[2]), np.float32)
    for m in range(queries.shape[0]):
        for d in range(queries.shape[1]):
            queries[m, d] = q[low + m // group, first_head + m % group, d] * scale
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
    begin = keys + (np.int64(table[segment * SEGMENT_PAGES]) * heads + head) * piece
    for line in range(0, min(piece, FIRST_BYTES), 64):
        prefetch_once(begin + line)
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
    """The outputs of a block's queries."""
    head_dim = out.shape[2]
    for m in range(state.shape[0]):
        inverse = np.float32(1) / state[m, head_dim]
        for d in range(head_dim):
            out[low + m // group, first_head + m % group, d] = state[m, d] * inverse


@numba.njit
def num_segments(a: Any) -> int:
    """Of the longest row."""
    longest = 0
    for row in range(len(a.starts)):
        longest = max(longest, a.starts[row] + a.lengths[row])
    return (longest + SEGMENT - 1) // SEGMENT


@numba.njit
def prepare(a: Any) -> None:
    """Write the real columns into their pages, before anybody reads them."""
    heads, head_dim = a.k.shape[2], a.k.shape[3]
    keys, values = a.k_pool.ctypes.data, a.v_pool.ctypes.data
    piece = PAGE_SIZE * head_dim
    for row in range(a.q.shape[0]):
        for column in range(a.lengths[row]):
            ordinal = a.starts[row] + column
            page, place = np.int64(a.tables[row, ordinal // PAGE_SIZE]), ordinal % PAGE_SIZE
            for head in range(heads):
                first = 4 * (page * heads + head) * piece
                page_keys = floats_at(keys + first, piece)
                page_values = floats_at(values + first, piece)
                for d in range(head_dim):
                    page_keys[d * PAGE_SIZE + place] = a.k[row, column, head, d]
                    page_values[place * head_dim + d] = a.v[row, column, head, d]


@numba.njit
def count(a: Any) -> int:
    columns = a.q.shape[1]
    parts = (columns + COLUMNS - 1) // COLUMNS if columns > 1 else num_segments(a)
    return a.q.shape[0] * a.k.shape[2] * parts


@numba.njit
def run(task: int, a: Any) -> None:
    rows, columns, heads, head_dim = a.q.shape[0], a.q.shape[1], a.k.shape[2], a.k.shape[3]
    group = a.q.shape[2] // heads
    head, row, part = task % heads, task // heads % rows, task // heads // rows
    start, length, table = a.starts[row], a.lengths[row], a.tables[row]
    is_decode = columns == 1
    # The latest columns have the most to read: they go first, so that no thread ends alone.
    low = 0 if is_decode else ((columns - 1) // COLUMNS - part) * COLUMNS
    high = min(low + COLUMNS, length)
    end = start + high
    segment, last_segment = 0, (end + SEGMENT - 1) // SEGMENT
    if is_decode:
        segment, last_segment = part, min(part + 1, last_segment)
    if high <= low or segment >= last_segment:
        return
    queries = gather(a.q[row], a.scale[0], low, high, head * group, group)
    scores = np.empty((queries.shape[0], PAGE_SIZE), np.float32)
    total, state = np.empty((2, queries.shape[0], head_dim + 2), np.float32)
    clear(total)
    for number in range(segment, last_segment):
        attend_segment(
            queries, a.k_pool, a.v_pool, table, head, number, start + low + 1, end, group, scores, state
        )
        if is_decode:
            for m in range(state.shape[0]):
                for d in range(state.shape[1]):
                    a.states[row, head, number, m, d] = state[m, d]
        else:
            merge(total, state)
    if not is_decode:
        scatter(total, low, head * group, group, a.out[row])


@numba.njit
def finish(a: Any) -> None:
    """Padding columns become zero; the segments of decode rows are merged."""
    rows, columns, heads, head_dim = a.q.shape[0], a.q.shape[1], a.k.shape[2], a.k.shape[3]
    group = a.q.shape[2] // heads
    for row in range(rows):
        for column in range(a.lengths[row], columns):
            a.out[row, column] = zero
    if columns > 1:
        return
    total = np.empty((group, head_dim + 2), np.float32)
    for row in range(rows):
        if a.lengths[row] == 0:
            continue
        for head in range(heads):
            clear(total)
            for segment in range((a.starts[row] + SEGMENT) // SEGMENT):
                merge(total, a.states[row, head, segment])
            scatter(total, 0, head * group, group, a.out[row])


def paged_attention() -> Functions:
    """See ``api.paged_attention``."""
    return Functions(count, run, prepare, finish)
