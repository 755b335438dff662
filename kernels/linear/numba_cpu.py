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

from ninfer_jax.kernels.cpu import ELEMENTS, Buffer, is_available, register, struct
from ninfer_jax.kernels.linear.quant import Matrix, stored_values, values_and_scale

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


@functools.cache
def _kernel(element: str) -> tuple[Any, Any]:
    """(count, run) for weights of one format."""
    import numba

    from ninfer_jax.kernels.cpu.intrinsics import prefetch
    from ninfer_jax.kernels.cpu.tiles import dot_block

    block = dot_block(element)

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
        x_row, w_row, y_row = x.strides[0], weight.strides[0], out.strides[0]
        xs, ws, scales, ys = x.ctypes.data, weight.ctypes.data, scale.ctypes.data, out.ctypes.data
        panel = max(PANEL_BYTES // w_row // BLOCK, 1) * BLOCK
        for first_row in range(0, rows, PANEL_ROWS):
            last_row = min(first_row + PANEL_ROWS, rows)
            for first in range(low, high, panel):
                last = min(first + panel, high)
                for row in range(first_row, last_row, BLOCK):
                    num_rows = min(last_row - row, BLOCK)
                    for output in range(first, last, BLOCK):
                        w = ws + output * w_row
                        if row == 0:
                            for line in range(0, BLOCK * w_row, 64):
                                prefetch(w + AHEAD + line)
                        block(
                            xs + row * x_row, x_row, num_rows, w, w_row, min(last - output, BLOCK), inputs,
                            scales + 4 * output, ys + row * y_row + 4 * output, y_row,
                        )  # fmt: skip

    return count, run


def supports(weight: Matrix) -> bool:
    """Whether this host can run the kernel and it knows the weight's format."""
    return str(stored_values(weight).dtype) in ELEMENTS and is_available()


def dot(x: jax.Array, weight: Matrix) -> jax.Array:
    """``[rows, in]`` by ``[out, in]`` -> ``[rows, out]`` float32. See ``supports``."""
    values, scale = values_and_scale(weight)
    element = str(values.dtype)
    count, run = _kernel(element)
    name = f"ninfer_linear_{element}"
    operands = (Buffer(np.float32, 2), Buffer(ELEMENTS[element], 2), Buffer(np.float32, 1))
    register(name, count=count, run=run, operands=operands, results=(Buffer(np.float32, 2),))
    call: Any = jax.ffi.ffi_call(name, struct((x.shape[0], values.shape[0]), jnp.float32))
    out: jax.Array = call(x.astype(jnp.float32), values, scale)
    return out
