"""SwiGLU's machine code. Compiled functions see the operands of ``numba_cpu.py`` as ``a``."""

from typing import Any

import numba
import numpy as np

from ninfer_jax.kernels.cpu.intrinsics import exp
from ninfer_jax.kernels.cpu.tasks import Functions

TASK = 16384
"""Outputs of one task, in whole rows where a row is shorter."""

zero, one = np.float32(0), np.float32(1)


@numba.njit
def _rows_of_task(inner: int) -> int:
    return max(TASK // max(inner, 1), 1)


@numba.njit
def _count(a: Any) -> int:
    rows = _rows_of_task(a.out.shape[1])
    return (a.out.shape[0] + rows - 1) // rows


@numba.njit(error_model="numpy")
def _gate(gate: Any, up: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        x = gate[i]
        small = exp(-abs(x))
        out[i] = x * (one if x >= zero else small) / (one + small) * up[i]


@numba.njit
def _run(task: int, a: Any) -> None:
    inner = a.out.shape[1]
    rows = _rows_of_task(inner)
    for row in range(task * rows, min((task + 1) * rows, a.out.shape[0])):
        _gate(a.gate_up[row, :inner], a.gate_up[row, inner:], a.out[row])


def swiglu() -> Functions:
    """See ``api.swiglu``."""
    return Functions(_count, _run)
