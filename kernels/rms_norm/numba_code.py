"""The norm's machine code: one order of its sum for every number of rows. Compiled functions see the
operands of ``numba_cpu.py`` as ``a``."""

from typing import Any

import numba
import numpy as np

from ninfer_jax.kernels.cpu.tasks import Functions
from ninfer_jax.kernels.cpu.tiles import dot_block

ROWS = 16
"""Rows of one task."""

one = np.float32(1)
dot = dot_block("float32")


@numba.njit
def _count(a: Any) -> int:
    return (a.x.shape[0] + ROWS - 1) // ROWS


def _norm_row(zero_centred: bool) -> Any:
    """A compiled function: the norm of one row."""
    offset = np.float32(1 if zero_centred else 0)

    @numba.njit(error_model="numpy")
    def norm_row(x: Any, weight: Any, epsilon: Any, out: Any) -> None:
        size = x.shape[0]
        here, share, mean = x.ctypes.data, np.empty(1, np.float32), np.empty(1, np.float32)
        share[0] = one / np.float32(size)
        dot(here, 0, 1, here, 0, 1, size, share.ctypes.data, mean.ctypes.data, 0)
        scale = one / np.sqrt(mean[0] + epsilon)
        for i in range(size):
            out[i] = x[i] * scale * (offset + weight[i])

    return norm_row


def rms_norm(zero_centred: bool) -> Functions:
    """See ``api.rms_norm``."""
    norm_row = _norm_row(zero_centred)

    @numba.njit
    def run(task: int, a: Any) -> None:
        for row in range(task * ROWS, min((task + 1) * ROWS, a.x.shape[0])):
            norm_row(a.x[row], a.weight, a.epsilon[0], a.out[row])

    return Functions(_count, run)


def add_rms_norm(zero_centred: bool) -> Functions:
    """See ``api.add_rms_norm``."""
    norm_row = _norm_row(zero_centred)

    @numba.njit
    def run(task: int, a: Any) -> None:
        for row in range(task * ROWS, min((task + 1) * ROWS, a.x.shape[0])):
            for i in range(a.x.shape[1]):
                a.total[row, i] = a.x[row, i] + a.delta[row, i]
            norm_row(a.total[row], a.weight, a.epsilon[0], a.out[row])

    return Functions(_count, run)
