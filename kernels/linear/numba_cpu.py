"""``linear`` on the CPU: one kernel for every number of rows and every weight format.

Each output is one dot product in float32, summed in the same order whatever stands beside it
(``kernels/cpu/tiles.py``), so a row's result does not depend on the batch, the prefill chunk or the
bucket it was padded to, bit for bit. A block of 4 rows by 4 outputs stays in registers: 8 loads feed 16
multiply-adds, and the weight becomes float32 on its way into them, so int8 weights cost their own bytes
and nothing is rounded but they.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.kernels.cpu import Buffer, is_available, register
from ninfer_jax.kernels.linear.quant import Matrix, QuantArray

TILE = 32
"""Outputs of one task: their weights stay in cache while every row passes."""

BLOCK = 4
"""Rows, and outputs, of one tile of sums."""

PANEL_BYTES = 24 * 1024
"""Weights that many rows pass while they lie in the first-level cache."""

PANEL_ROWS = 64
"""Rows that pass a panel of weights before the next, and lie in the second-level cache meanwhile."""

AHEAD = 4096
"""Bytes between what is multiplied and what is fetched: hardware prefetchers stop at a page's end."""

ELEMENTS = {"int8": np.int8, "float32": np.float32, "bfloat16": np.uint16}
"""Weight formats, and what Numba sees of them."""


@functools.cache
def _kernel(element: str) -> tuple[Any, Any]:
    """(count, run) for weights of one format."""
    import numba

    from ninfer_jax.kernels.cpu.intrinsics import bfloat16_to_float, prefetch
    from ninfer_jax.kernels.cpu.tiles import dot_tile
    from ninfer_jax.kernels.cpu.vectors import LANES

    zero = np.float32(0)
    widen = bfloat16_to_float if element == "bfloat16" else numba.njit(lambda value: np.float32(value))
    tile1, tile2, tile3, tile4 = (dot_tile(rows, BLOCK, element) for rows in (1, 2, 3, 4))
    single = dot_tile(1, 1, element)

    @numba.njit
    def add_tail(x: Any, weight: Any, scale: Any, out: Any, low: int, high: int) -> None:
        """The inputs past the last whole vector, for outputs ``low`` to ``high``."""
        for row in range(x.shape[0]):
            for output in range(low, high):
                total = zero
                for i in range(x.shape[1] // LANES * LANES, x.shape[1]):
                    total += x[row, i] * widen(weight[output, i])
                out[row, output] += total * scale[output]

    @numba.njit
    def count(x: Any, weight: Any, scale: Any, out: Any) -> int:
        return (weight.shape[0] + TILE - 1) // TILE

    @numba.njit
    def place(task: int, outputs: int) -> tuple[int, int]:
        """The outputs of a task. Two tasks that follow each other, mostly claimed by two threads, lie in
        different halves of the weight: so each thread reads on where it stopped."""
        tasks = (outputs + TILE - 1) // TILE
        first = (task // 2 + (tasks + 1) // 2 * (task % 2)) * TILE
        return first, min(first + TILE, outputs)

    @numba.njit
    def run(task: int, x: Any, weight: Any, scale: Any, out: Any) -> None:
        rows, inputs = x.shape
        low, high = place(task, weight.shape[0])
        blocks_end = low + (high - low) // BLOCK * BLOCK
        whole = inputs // LANES * LANES
        x_row, w_row, y_row = x.strides[0], weight.strides[0], out.strides[0]
        xs, ws, scales, ys = x.ctypes.data, weight.ctypes.data, scale.ctypes.data, out.ctypes.data
        group = max(PANEL_BYTES // w_row // BLOCK, 1) * BLOCK
        for first_row in range(0, rows, PANEL_ROWS):
            last_row = min(first_row + PANEL_ROWS, rows)
            for first in range(low, blocks_end, group):
                for row in range(first_row, last_row, BLOCK):
                    num_rows = min(last_row - row, BLOCK)
                    a = xs + row * x_row
                    for output in range(first, min(first + group, blocks_end), BLOCK):
                        w, s, y = ws + output * w_row, scales + 4 * output, ys + row * y_row + 4 * output
                        if row == 0:
                            for line in range(0, BLOCK * w_row, 64):
                                prefetch(w + AHEAD + line)
                        if num_rows == 4:
                            tile4(a, x_row, w, w_row, whole, s, y, y_row)
                        elif num_rows == 1:
                            tile1(a, x_row, w, w_row, whole, s, y, y_row)
                        elif num_rows == 2:
                            tile2(a, x_row, w, w_row, whole, s, y, y_row)
                        else:
                            tile3(a, x_row, w, w_row, whole, s, y, y_row)
        for output in range(blocks_end, high):
            w, s = ws + output * w_row, scales + 4 * output
            for row in range(rows):
                y = ys + row * y_row + 4 * output
                single(xs + row * x_row, x_row, w, w_row, whole, s, y, y_row)
        if whole < inputs:
            add_tail(x, weight, scale, out, low, high)

    return count, run


def supports(weight: Matrix) -> bool:
    """Whether this host can run the kernel and it knows the weight's format."""
    values = weight.values if isinstance(weight, QuantArray) else weight
    return str(values.dtype) in ELEMENTS and is_available()


def dot(x: jax.Array, weight: Matrix) -> jax.Array:
    """``[rows, in]`` by ``[out, in]`` -> ``[rows, out]`` float32. See ``supports``."""
    if isinstance(weight, QuantArray):
        values, scale = weight.values, weight.scale
    else:
        values, scale = weight, jnp.ones(weight.shape[0], jnp.float32)
    element = str(values.dtype)
    count, run = _kernel(element)
    name = f"ninfer_linear_{element}"
    operands = (Buffer(np.float32, 2), Buffer(ELEMENTS[element], 2), Buffer(np.float32, 1))
    register(name, count=count, run=run, operands=operands, results=(Buffer(np.float32, 2),))
    result = jax.ShapeDtypeStruct((x.shape[0], values.shape[0]), jnp.float32)  # type: ignore[no-untyped-call]
    call: Any = jax.ffi.ffi_call(name, result)
    out: jax.Array = call(x.astype(jnp.float32), values, scale)
    return out
