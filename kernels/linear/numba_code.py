"""The machine code of ``linear``: one kernel for every number of rows and every weight format.

Each output is one dot product in float32, summed in the same order whatever stands beside it
(``kernels/cpu/tiles.py``), so a row's result does not depend on the batch, the prefill chunk or the
bucket it was padded to, bit for bit. A block of 4 rows by 4 outputs stays in registers: 8 loads feed 16
multiply-adds, and the weight becomes float32 on its way into them, so int8 weights cost their own bytes
and nothing is rounded but they.
"""

from typing import Any

import numba

from ninfer_jax.kernels.cpu.intrinsics import prefetch, prefetch_once
from ninfer_jax.kernels.cpu.tasks import Functions, num_threads
from ninfer_jax.kernels.cpu.tiles import AHEAD, dot_block, dot_stream

TILE = 32
"""Outputs of one task of many rows: their weights stay in cache while every row passes."""

FEW_ROWS = 8
LONGEST = 256
"""Up to ``FEW_ROWS``, where reading the weights takes the time, a thread reads so many outputs on end."""

BLOCK = 4
"""Rows, and outputs, of one tile of sums."""

PANEL_BYTES = 24 * 1024
"""Weights that many rows pass while they lie in the first-level cache."""

PANEL_ROWS = 64
"""Rows that pass a panel of weights before the next, and lie in the second-level cache meanwhile."""


def linear(element: str) -> Functions:
    """``out[r, o] = (x[r] . weight[o]) scale[o]`` for weights of one format."""
    block, stream, stream_for_two = dot_block(element), dot_stream(1, element), dot_stream(2, element)

    @numba.njit
    def outputs_of_task(rows: int, outputs: int) -> int:
        if rows > FEW_ROWS:
            return TILE
        share = outputs // (2 * num_threads()) + BLOCK - 1
        return min(max(share // BLOCK * BLOCK, TILE), LONGEST)

    @numba.njit
    def count(a: Any) -> int:
        size = outputs_of_task(a.x.shape[0], a.weight.shape[0])
        return (a.weight.shape[0] + size - 1) // size

    @numba.njit
    def place(task: int, rows: int, outputs: int) -> tuple[int, int]:
        """The outputs of a task. Two tasks that follow each other, mostly claimed by two threads, lie in
        different halves of the weight: so each thread reads on where it stopped."""
        size = outputs_of_task(rows, outputs)
        tasks = (outputs + size - 1) // size
        first = (task // 2 + (tasks + 1) // 2 * (task % 2)) * size
        return first, min(first + size, outputs)

    @numba.njit
    def run(task: int, a: Any) -> None:
        x, weight, scale, out = a.x, a.weight, a.scale, a.out
        rows, inputs = x.shape
        low, high = place(task, rows, weight.shape[0])
        x_row, w_row, y_row = x.strides[0], weight.strides[0], out.strides[0]
        xs, ws, scales, ys = x.ctypes.data, weight.ctypes.data, scale.ctypes.data, out.ctypes.data
        if rows <= 2:
            w, s, y = ws + low * w_row, scales + 4 * low, ys + 4 * low
            if rows == 1:
                stream(xs, x_row, w, w_row, high - low, inputs, s, y, y_row)
            else:
                stream_for_two(xs, x_row, w, w_row, high - low, inputs, s, y, y_row)
            return
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
                            for line in range(AHEAD, AHEAD + BLOCK * w_row, 64):
                                if rows <= BLOCK:
                                    prefetch_once(w + line)
                                else:
                                    prefetch(w + line)
                        block(
                            xs + row * x_row, x_row, num_rows, w, w_row, min(last - output, BLOCK), inputs,
                            scales + 4 * output, ys + row * y_row + 4 * output, y_row,
                        )  # fmt: skip

    return Functions(count, run)
