"""Matrix micro-kernels as LLVM vector code: tiles of sums that stay in registers.

A compiler that vectorises a loop chooses the order of its sums, and chooses anew wherever the loop is
inlined. Here the order is written down, so that tiles of every shape give the same bits: ``dot_tile``
sums lane by lane along its vectors and adds the lanes by halves; ``outer_tile`` adds one product after
another to each output. Addresses and distances are bytes. Imported only where Numba is.
"""

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ninfer_jax.kernels.cpu.intrinsics import (
    as_pointer,
    bfloat16_to_float,
    emit_prefetch,
    floats_at,
    prefetch_once,
)
from ninfer_jax.kernels.cpu.kernel import ELEMENTS
from ninfer_jax.kernels.cpu.vectors import (
    FLOAT,
    FLOAT_BYTES,
    INDEX,
    LANES,
    VECTOR,
    VECTOR_BYTES,
    ZERO,
    add,
    add_product,
    broadcast,
    fold,
    integer,
    larger,
    load,
    load_widened,
    offset,
    store,
    variables,
    vector_exp,
)

AHEAD = 4096
"""Bytes between what is multiplied and what is fetched."""


@functools.cache
def dot_tile(rows: int, outputs: int, element: str) -> Any:
    """A compiled ``(x, x_row, w, w_row, size, scale, out, out_row)``: ``out[r, o] = (x[r] . w[o]) scale[o]``.

    ``w`` is of ``element``, the others float32. ``size`` is a multiple of LANES.
    """

    @intrinsic
    def tile(
        typing: Any, x: Any, x_row: Any, w: Any, w_row: Any, size: Any, scale: Any, out: Any, out_row: Any
    ) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, x_row, w, w_row, size, scale, out, out_row = args
            xs = [offset(builder, x, r, x_row) for r in range(rows)]
            ws = [offset(builder, w, o, w_row) for o in range(outputs)]
            totals = variables(builder, [ZERO] * (rows * outputs))
            with cgutils.for_range_slice(builder, integer(0), size, integer(LANES)) as (index, _):
                xi = [load(builder, offset(builder, a, index, FLOAT_BYTES), VECTOR) for a in xs]
                for o, address in enumerate(ws):
                    place = offset(builder, address, index, ELEMENTS[element].itemsize)
                    wi = load_widened(builder, place, element)
                    for r in range(rows):
                        add_product(builder, totals[r * outputs + o], xi[r], wi)
            for o in range(outputs):
                factor = load(builder, offset(builder, scale, o, FLOAT_BYTES), FLOAT)
                for r in range(rows):
                    total = fold(builder, builder.load(totals[r * outputs + o]), add)
                    place = offset(builder, offset(builder, out, r, out_row), o, FLOAT_BYTES)
                    store(builder, builder.fmul(total, factor), place)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), emit

    return tile


@functools.cache
def outer_tile(rows: int, vectors: int) -> Any:
    """A compiled ``(a, a_row, b, b_row, size, out, out_row, soon)``: ``out[r] += sum_k a[r, k] * b[k]``.

    Everything float32: ``a [rows, size]``, ``b [size, vectors * LANES]``, ``out [rows, vectors * LANES]``.
    What lies at ``soon`` like ``b`` is fetched meanwhile.
    """

    @intrinsic
    def tile(
        typing: Any, a: Any, a_row: Any, b: Any, b_row: Any, size: Any, out: Any, out_row: Any, soon: Any
    ) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a, a_row, b, b_row, size, out, out_row, soon = args
            sources = [offset(builder, a, r, a_row) for r in range(rows)]
            places = [
                offset(builder, offset(builder, out, r, out_row), v, VECTOR_BYTES)
                for r in range(rows)
                for v in range(vectors)
            ]
            totals = variables(builder, [load(builder, place, VECTOR) for place in places])
            with cgutils.for_range_slice(builder, integer(0), size, integer(1)) as (index, _):
                line, later = offset(builder, b, index, b_row), offset(builder, soon, index, b_row)
                for v in range(vectors):
                    emit_prefetch(builder, offset(builder, later, v, VECTOR_BYTES), 0)
                bk = [load(builder, offset(builder, line, v, VECTOR_BYTES), VECTOR) for v in range(vectors)]
                for r, source in enumerate(sources):
                    factor = load(builder, offset(builder, source, index, FLOAT_BYTES), FLOAT)
                    ark = broadcast(builder, factor)
                    for v in range(vectors):
                        add_product(builder, totals[r * vectors + v], ark, bk[v])
            for total, place in zip(totals, places, strict=True):
                store(builder, builder.load(total), place)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), emit

    return tile


@functools.cache
def softmax_row(vectors: int) -> Any:
    """A compiled ``(scores, visible, before) -> (maximum, total)`` for ``vectors * LANES`` float32 scores.

    ``maximum`` is that of ``before`` and the first ``visible`` scores; those become ``exp(score -
    maximum)``, the others 0, and ``total`` is their sum.
    """

    @intrinsic
    def tile(typing: Any, scores: Any, visible: Any, before: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            scores, visible, before = args
            numbers = ir.VectorType(INDEX, LANES)
            bound = broadcast(builder, builder.trunc(visible, INDEX))
            lanes = [ir.Constant(numbers, [*range(v * LANES, (v + 1) * LANES)]) for v in range(vectors)]
            masks = [builder.icmp_signed("<", lane, bound) for lane in lanes]
            places = [offset(builder, scores, v, VECTOR_BYTES) for v in range(vectors)]
            values = [load(builder, place, VECTOR) for place in places]
            best = broadcast(builder, before)
            for mask, value in zip(masks, values, strict=True):
                best = larger(builder, builder.select(mask, value, best), best)
            maximum = fold(builder, best, larger)
            total = ZERO
            for mask, value, place in zip(masks, values, places, strict=True):
                shifted = builder.fsub(value, broadcast(builder, maximum))
                exponent = builder.select(mask, vector_exp(builder, shifted), ZERO)
                store(builder, exponent, place)
                total = builder.fadd(total, exponent)
            total = fold(builder, total, add)
            return context.make_tuple(builder, signature.return_type, (maximum, total))

        pair = types.UniTuple(types.float32, 2)
        return pair(types.int64, types.int64, types.float32), emit

    return tile


def _for_rows(make: Callable[[int], Any]) -> Any:
    """A compiled ``(rows, *arguments)`` that calls ``make``'s tile for 1 to 4 rows."""
    tile1, tile2, tile3, tile4 = (make(rows) for rows in (1, 2, 3, 4))

    @numba.njit
    def tile(rows: int, *arguments: int) -> None:
        if rows == 4:
            tile4(*arguments)
        elif rows == 3:
            tile3(*arguments)
        elif rows == 2:
            tile2(*arguments)
        else:
            tile1(*arguments)

    return tile


@functools.cache
def _left_over(element: str) -> Any:
    """A compiled ``(x, x_row, rows, w, w_row, outputs, size, scale, out, out_row)``: adds to each output what
    is left over a whole number of vectors."""
    stored, width = ELEMENTS[element], ELEMENTS[element].itemsize
    widen = bfloat16_to_float if element == "bfloat16" else numba.njit(lambda value: np.float32(value))

    @numba.njit
    def add_tail(x: int, w: int, size: int, scale: int, out: int) -> None:
        total = np.float32(0)
        for index in range(size // LANES * LANES, size):
            weight = numba.carray(as_pointer(w + width * index), 1, stored)[0]
            total += floats_at(x + FLOAT_BYTES * index, 1)[0] * widen(weight)
        floats_at(out, 1)[0] += total * floats_at(scale, 1)[0]

    @numba.njit
    def left_over(
        x: int, x_row: int, rows: int, w: int, w_row: int, outputs: int, size: int, scale: int, out: int,
        out_row: int,
    ) -> None:  # fmt: skip
        if size % LANES == 0:
            return
        for r in range(rows):
            for o in range(outputs):
                place = out + r * out_row + FLOAT_BYTES * o
                add_tail(x + r * x_row, w + o * w_row, size, scale + FLOAT_BYTES * o, place)

    return left_over


@functools.cache
def dot_block(element: str) -> Any:
    """A compiled ``(x, x_row, rows, w, w_row, outputs, size, scale, out, out_row)``: ``dot_tile`` for 1 to 4
    rows and outputs of any size; what is left over a whole number of vectors is added last."""
    tile = _for_rows(lambda rows: dot_tile(rows, 4, element))
    single, left_over = dot_tile(1, 1, element), _left_over(element)

    @numba.njit
    def block(
        x: int, x_row: int, rows: int, w: int, w_row: int, outputs: int, size: int, scale: int, out: int,
        out_row: int,
    ) -> None:  # fmt: skip
        whole = size // LANES * LANES
        if outputs < 4:
            for r in range(rows):
                for o in range(outputs):
                    place = out + r * out_row + FLOAT_BYTES * o
                    factor, row = scale + FLOAT_BYTES * o, x + r * x_row
                    single(row, x_row, w + o * w_row, w_row, whole, factor, place, out_row)
        else:
            tile(rows, x, x_row, w, w_row, whole, scale, out, out_row)
        left_over(x, x_row, rows, w, w_row, outputs, size, scale, out, out_row)

    return block


@functools.cache
def dot_stream(rows: int, element: str) -> Any:
    """A compiled ``(x, x_row, w, w_row, outputs, size, scale, out, out_row)``: ``dot_block`` for so few rows
    and any number of outputs, where reading ``w`` takes the time.

    Two rows of it are read at once, which hardware prefetchers follow, and what lies AHEAD is asked for:
    they stop at a page's end.
    """
    pair, single, left_over = dot_tile(rows, 2, element), dot_tile(rows, 1, element), _left_over(element)

    @numba.njit
    def stream(
        x: int, x_row: int, w: int, w_row: int, outputs: int, size: int, scale: int, out: int, out_row: int
    ) -> None:
        whole = size // LANES * LANES
        for o in range(0, outputs - 1, 2):
            here = w + o * w_row
            for line in range(AHEAD, AHEAD + 2 * w_row, 64):
                prefetch_once(here + line)
            pair(x, x_row, here, w_row, whole, scale + FLOAT_BYTES * o, out + FLOAT_BYTES * o, out_row)
        if outputs % 2:
            o = outputs - 1
            single(x, x_row, w + o * w_row, w_row, whole, scale + 4 * o, out + 4 * o, out_row)
        left_over(x, x_row, rows, w, w_row, outputs, size, scale, out, out_row)

    return stream


_wide = _for_rows(lambda rows: outer_tile(rows, 4))
_narrow = _for_rows(lambda rows: outer_tile(rows, 1))


@numba.njit
def _add_rows(
    a: int, a_row: int, rows: int, b: int, b_row: int, size: int, out: int, out_row: int, columns: int,
    soon: int,
) -> None:  # fmt: skip
    """``add_matmul`` for 1 to 4 rows and whole vectors of columns."""
    done = 0
    while done + 4 * LANES <= columns:
        here = FLOAT_BYTES * done
        _wide(rows, a, a_row, b + here, b_row, size, out + here, out_row, soon + here)
        done += 4 * LANES
    while done + LANES <= columns:
        here = FLOAT_BYTES * done
        _narrow(rows, a, a_row, b + here, b_row, size, out + here, out_row, soon + here)
        done += LANES


@numba.njit
def add_matmul(
    a: int, a_row: int, rows: int, b: int, b_row: int, size: int, out: int, out_row: int, columns: int,
    soon: int,
) -> None:  # fmt: skip
    """``out[rows, columns] += a[rows, size] @ b[size, columns]``, float32, at these addresses with rows
    this far apart; each output adds one product after another. Meanwhile what lies at ``soon`` like ``b``
    is fetched."""
    for row in range(0, rows, 4):
        _add_rows(
            a + row * a_row, a_row, min(rows - row, 4), b, b_row, size, out + row * out_row, out_row, columns,
            soon if row == 0 else b,
        )  # fmt: skip
    for row in range(rows):
        for column in range(columns // LANES * LANES, columns):
            place = floats_at(out + row * out_row + FLOAT_BYTES * column, 1)
            for index in range(size):
                factor = floats_at(a + row * a_row + FLOAT_BYTES * index, 1)[0]
                place[0] += factor * floats_at(b + index * b_row + FLOAT_BYTES * column, 1)[0]
