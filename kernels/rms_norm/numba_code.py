"""The norm's machine code: one order of its sum for every number of rows."""

from typing import Any

import numba
import numpy as np

from ninfer_jax.kernels.cpu.tasks import Functions
from ninfer_jax.kernels.cpu.tiles import dot_block

ROWS = 16
"""Rows of one task."""


def rms_norm(zero_centred: bool) -> Functions:
    """See ``api.rms_norm``."""
    offset, one = np.float32(1 if zero_centred else 0), np.float32(1)
    dot = dot_block("float32")

    @numba.njit
    def count(a: Any) -> int:
        return (a.x.shape[0] + ROWS - 1) // ROWS

    @numba.njit(error_model="numpy")
    def run(task: int, a: Any) -> None:
        x, weight, out = a.x, a.weight, a.out
        size = x.shape[1]
        row_bytes, xs = x.strides[0], x.ctypes.data
        mean = np.empty(1, np.float32)
        share = np.full(1, one / np.float32(size))
        for row in range(task * ROWS, min((task + 1) * ROWS, x.shape[0])):
            here = xs + row * row_bytes
            dot(here, row_bytes, 1, here, row_bytes, 1, size, share.ctypes.data, mean.ctypes.data, 4)
            scale = one / np.sqrt(mean[0] + a.epsilon[0])
            for i in range(size):
                out[row, i] = x[row, i] * scale * (offset + weight[i])

    return Functions(count, run)
