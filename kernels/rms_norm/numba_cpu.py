"""The norm on the CPU: one call where XLA makes four, and one order of its sum for every number of rows."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.kernels.cpu import Buffer, is_available, register, struct

ROWS = 16
"""Rows of one task."""


@functools.cache
def _kernel(zero_centred: bool) -> tuple[Any, Any]:
    """(count, run)."""
    import numba

    from ninfer_jax.kernels.cpu.tiles import dot_block

    offset, one = np.float32(1 if zero_centred else 0), np.float32(1)
    dot = dot_block("float32")

    @numba.njit
    def count(x: Any, weight: Any, epsilon: Any, out: Any) -> int:
        return (x.shape[0] + ROWS - 1) // ROWS

    @numba.njit(error_model="numpy")
    def run(task: int, x: Any, weight: Any, epsilon: Any, out: Any) -> None:
        size = x.shape[1]
        row_bytes, xs = x.strides[0], x.ctypes.data
        mean = np.empty(1, np.float32)
        share = np.full(1, one / np.float32(size))
        for row in range(task * ROWS, min((task + 1) * ROWS, x.shape[0])):
            here = xs + row * row_bytes
            dot(here, row_bytes, 1, here, row_bytes, 1, size, share.ctypes.data, mean.ctypes.data, 4)
            scale = one / np.sqrt(mean[0] + epsilon[0])
            for i in range(size):
                out[row, i] = x[row, i] * scale * (offset + weight[i])

    return count, run


def supports(x: jax.Array, weight: jax.Array) -> bool:
    """Whether this host can run the kernel, and nothing would have to be converted for it."""
    return x.dtype == weight.dtype == jnp.float32 and is_available()


def rms_norm(x: jax.Array, weight: jax.Array, *, epsilon: float, zero_centred: bool) -> jax.Array:
    """See ``api.rms_norm``."""
    count, run = _kernel(zero_centred)
    name = "ninfer_rms_norm_zero_centred" if zero_centred else "ninfer_rms_norm"
    matrix, vector = Buffer(np.float32, 2), Buffer(np.float32, 1)
    register(name, count=count, run=run, operands=(matrix, vector, vector), results=(matrix,))
    rows = x.reshape(-1, x.shape[-1])
    call: Any = jax.ffi.ffi_call(name, struct(rows.shape, jnp.float32))
    out: jax.Array = call(rows, weight, jnp.full(1, epsilon, jnp.float32))
    return out.reshape(x.shape)
