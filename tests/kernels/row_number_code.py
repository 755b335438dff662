"""A kernel for tests: each task adds its number to one row."""

import os
import time
from typing import Any

import numba

from ninfer_jax.kernels.cpu.tasks import Functions


@numba.njit
def _count(a: Any) -> int:
    return a.x.shape[0]


@numba.njit
def _run(task: int, a: Any) -> None:
    for column in range(a.x.shape[1]):
        a.out[task, column] = a.x[task, column] + task


def add_row_numbers() -> Functions:
    return Functions(_count, _run)


def broken() -> Functions:
    return Functions(_count, numba.njit(lambda task, a: a.y))


def deadly() -> Functions:
    os.abort()


def endless() -> Functions:
    while True:
        time.sleep(60)
