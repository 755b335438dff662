"""Paged attention on the CPU: one kernel for decode rows and prefill chunks.

A task is one row, one KV head and a block of columns. It writes its own columns' keys and values into
the pool in place and attends page by page with an online softmax (Milakov and Gimelshein 2018), reading
earlier tokens from the pool and this step's from the operands, so no task waits for another. Pages are
cut at absolute ordinals and every sum has one order: a column's output does not depend on the chunk, the
batch or the bucket it came in, bit for bit. Work follows the context alone, never the pool or the table.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.config import NULL_PAGE, PAGE_SIZE
from ninfer_jax.kernels.cpu import Buffer, is_available, register
from ninfer_jax.kernels.paged_attention.pool import KVPool

COLUMNS = 16
"""Columns of one task: enough to repay reading a page, few enough to share among threads."""

NAME = "ninfer_paged_attention"


@functools.cache
def _kernel() -> tuple[Any, Any]:
    """(count, run) for float32 pools."""
    import numba

    from ninfer_jax.kernels.cpu.intrinsics import exp

    zero, lowest = np.float32(0), np.float32(-1e30)
    fast = numba.njit(fastmath={"reassoc", "contract", "nsz"})

    @fast
    def score(queries: Any, keys: Any, num_keys: int, scores: Any) -> None:
        """``scores[m, s] = queries[m] . keys[s]`` for s < num_keys, rows in fours, keys in pairs."""
        rows, head_dim = queries.shape
        for r0 in range(0, rows, 4):
            r1, r2, r3 = min(r0 + 1, rows - 1), min(r0 + 2, rows - 1), min(r0 + 3, rows - 1)
            for s in range(0, num_keys, 2):
                a00 = a01 = a02 = a03 = a10 = a11 = a12 = a13 = zero
                for d in range(head_dim):
                    k0, k1 = keys[s, d], keys[s + 1, d]
                    q0, q1, q2, q3 = queries[r0, d], queries[r1, d], queries[r2, d], queries[r3, d]
                    a00 += q0 * k0
                    a01 += q1 * k0
                    a02 += q2 * k0
                    a03 += q3 * k0
                    a10 += q0 * k1
                    a11 += q1 * k1
                    a12 += q2 * k1
                    a13 += q3 * k1
                scores[r0, s], scores[r0, s + 1] = a00, a10
                scores[r1, s], scores[r1, s + 1] = a01, a11
                scores[r2, s], scores[r2, s + 1] = a02, a12
                scores[r3, s], scores[r3, s + 1] = a03, a13

    @fast
    def absorb(weights: Any, values: Any, num_keys: int, total: Any) -> None:
        """``total += sum_s weights[s] * values[s]``, four keys at a time."""
        head_dim = total.shape[0]
        for s in range(0, num_keys, 4):
            w0, w1, w2, w3 = weights[s], weights[s + 1], weights[s + 2], weights[s + 3]
            for d in range(head_dim):
                total[d] += (w0 * values[s, d] + w1 * values[s + 1, d]) + (
                    w2 * values[s + 2, d] + w3 * values[s + 3, d]
                )

    @numba.njit(fastmath={"reassoc", "nnan", "nsz"})
    def largest(scores: Any, visible: int) -> Any:
        best = lowest
        for s in range(visible):
            best = max(best, scores[s])
        return best

    @fast
    def exponents(scores: Any, visible: int, maximum: Any) -> Any:
        """Scores become ``exp(score - maximum)``, 0 past ``visible``; returns their sum. Always over a
        whole page: the order of a vectorised sum depends on its length."""
        total = zero
        for s in range(PAGE_SIZE):
            scores[s] = exp(scores[s] - maximum) if s < visible else zero
        for s in range(PAGE_SIZE):
            total += scores[s]
        return total

    @numba.njit
    def read_page(
        page: int, first: int, end: int, start: int, head: int, new: Any, pool: Any, out: Any
    ) -> None:
        """One head's tokens of one page, ordinals ``first`` to ``end``; the rest becomes zero."""
        head_dim = out.shape[1]
        for offset in range(PAGE_SIZE):
            ordinal = first + offset
            if ordinal >= end:
                for d in range(head_dim):
                    out[offset, d] = zero
            elif ordinal >= start:
                for d in range(head_dim):
                    out[offset, d] = new[ordinal - start, head, d]
            else:
                for d in range(head_dim):
                    out[offset, d] = pool[page, offset, head, d]

    @numba.njit
    def write_columns(
        low: int, high: int, start: int, length: int, table: Any, head: int, new: Any, pool: Any
    ) -> None:
        """Columns ``low`` to ``high`` of one head into their pages; padding goes to the null page."""
        for column in range(low, high):
            ordinal = start + column
            page = table[ordinal // PAGE_SIZE] if column < length else NULL_PAGE
            for d in range(new.shape[2]):
                pool[page, ordinal % PAGE_SIZE, head, d] = new[column, head, d]

    @numba.njit
    def count(
        q: Any, k: Any, v: Any, k_in: Any, v_in: Any, tables: Any, starts: Any, lengths: Any,
        out: Any, k_pool: Any, v_pool: Any,
    ) -> int:  # fmt: skip
        return q.shape[0] * k.shape[2] * ((q.shape[1] + COLUMNS - 1) // COLUMNS)

    @numba.njit
    def run(
        task: int, q: Any, k: Any, v: Any, k_in: Any, v_in: Any, tables: Any, starts: Any, lengths: Any,
        out: Any, k_pool: Any, v_pool: Any,
    ) -> None:  # fmt: skip
        num_kv_heads, head_dim = k.shape[2], k.shape[3]
        group = q.shape[2] // num_kv_heads
        blocks = (q.shape[1] + COLUMNS - 1) // COLUMNS
        # The latest columns have the most to read: they go first, so that no thread ends alone.
        low = (blocks - 1 - task // (num_kv_heads * q.shape[0])) * COLUMNS
        high = min(low + COLUMNS, q.shape[1])
        row, head = task // num_kv_heads % q.shape[0], task % num_kv_heads
        start, length, table = starts[row], lengths[row], tables[row]
        write_columns(low, high, start, length, table, head, k[row], k_pool)
        write_columns(low, high, start, length, table, head, v[row], v_pool)
        for column in range(max(low, length), high):
            out[row, column, head * group : (head + 1) * group] = zero
        high = min(high, length)
        if high <= low:
            return
        rows = (high - low) * group
        queries = np.empty((rows, head_dim), np.float32)
        totals = np.zeros((rows, head_dim), np.float32)
        maxima = np.full(rows, lowest, np.float32)
        sums = np.zeros(rows, np.float32)
        scores = np.empty((rows, PAGE_SIZE), np.float32)
        keys = np.empty((PAGE_SIZE, head_dim), np.float32)
        values = np.empty((PAGE_SIZE, head_dim), np.float32)
        for m in range(rows):
            for d in range(head_dim):
                queries[m, d] = q[row, low + m // group, head * group + m % group, d]
        end = start + high
        for index in range((end + PAGE_SIZE - 1) // PAGE_SIZE):
            first = index * PAGE_SIZE
            read_page(table[index], first, end, start, head, k[row], k_pool, keys)
            read_page(table[index], first, end, start, head, v[row], v_pool, values)
            num_keys = (min(end - first, PAGE_SIZE) + 3) // 4 * 4
            score(queries, keys, num_keys, scores)
            for m in range(rows):
                visible = min(start + low + m // group + 1 - first, num_keys)
                if visible <= 0:
                    continue
                maximum = max(maxima[m], largest(scores[m], visible))
                correction = exp(maxima[m] - maximum)
                maxima[m] = maximum
                sums[m] = sums[m] * correction + exponents(scores[m], visible, maximum)
                for d in range(head_dim):
                    totals[m, d] *= correction
                absorb(scores[m], values, num_keys, totals[m])
        for m in range(rows):
            inverse = np.float32(1) / sums[m]
            for d in range(head_dim):
                out[row, low + m // group, head * group + m % group, d] = totals[m, d] * inverse

    return count, run


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
    count, run = _kernel()
    float4, table, vector = Buffer(np.float32, 4), Buffer(np.int32, 2), Buffer(np.int32, 1)
    operands = (*(float4,) * 5, table, vector, vector)
    register(NAME, count=count, run=run, operands=operands, results=(float4,) * 3)
    shapes = [jax.ShapeDtypeStruct(array.shape, jnp.float32) for array in (q, pool.k, pool.v)]  # type: ignore[no-untyped-call]
    call: Any = jax.ffi.ffi_call(NAME, shapes, input_output_aliases={3: 1, 4: 2})
    queries = q.astype(jnp.float32) * scale
    k, v = k.astype(jnp.float32), v.astype(jnp.float32)
    out, keys, values = call(queries, k, v, pool.k, pool.v, block_tables, starts, lengths)
    return out.astype(q.dtype), KVPool(keys, values)
