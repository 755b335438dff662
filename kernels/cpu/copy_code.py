"""The machine code of ``materialise.py``."""

from typing import Any

import numba

from ninfer_jax.kernels.cpu.tasks import Functions


@numba.njit
def _count(a: Any) -> int:
    return 1


@numba.njit
def _run(task: int, a: Any) -> None:
    for i in range(a.x.size):
        a.out[i] = a.x[i]


def copy() -> Functions:
    return Functions(_count, _run)
