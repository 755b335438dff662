"""``linear`` on the CPU: one kernel for every number of rows and every weight format.

Each output is one dot product in float32, summed in the same order whatever stands beside it, so a row's
result does not depend on the batch, the prefill chunk or the bucket it was padded to, bit for bit. A
block of 4 rows by 2 outputs stays in registers: 6 loads feed 8 multiply-adds, and the weight becomes
float32 on its way into them, so int8 weights cost their own bytes and nothing is rounded but they.
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

AHEAD = 16384
"""Bytes between what is multiplied and what is fetched: hardware prefetchers stop at a page's end."""

ELEMENTS = {"int8": np.int8, "float32": np.float32, "bfloat16": np.uint16}
"""Weight formats, and what Numba sees of them."""


@functools.cache
def _kernel(element: str) -> tuple[Any, Any]:
    """(count, run) for weights of one format."""
    import numba

    from ninfer_jax.kernels.cpu.intrinsics import bfloat16_to_float, prefetch

    zero = np.float32(0)
    widen = bfloat16_to_float if element == "bfloat16" else numba.njit(lambda value: np.float32(value))

    @numba.njit
    def count(x: Any, weight: Any, scale: Any, out: Any) -> int:
        return (weight.shape[0] + TILE - 1) // TILE

    @numba.njit(fastmath={"reassoc", "contract", "nsz"})
    def run(task: int, x: Any, weight: Any, scale: Any, out: Any) -> None:
        rows, inputs = x.shape
        low, high = task * TILE, min((task + 1) * TILE, weight.shape[0])
        for r0 in range(0, rows, 4):
            r1, r2, r3 = min(r0 + 1, rows - 1), min(r0 + 2, rows - 1), min(r0 + 3, rows - 1)
            for o0 in range(low, high, 2):
                o1 = min(o0 + 1, high - 1)
                if r0 == 0:
                    ahead = weight[o0].ctypes.data + AHEAD
                    for line in range(0, 2 * inputs * weight.itemsize, 64):
                        prefetch(ahead + line)
                a00 = a01 = a02 = a03 = a10 = a11 = a12 = a13 = zero
                for i in range(inputs):
                    w0, w1 = widen(weight[o0, i]), widen(weight[o1, i])
                    x0, x1, x2, x3 = x[r0, i], x[r1, i], x[r2, i], x[r3, i]
                    a00 += x0 * w0
                    a01 += x1 * w0
                    a02 += x2 * w0
                    a03 += x3 * w0
                    a10 += x0 * w1
                    a11 += x1 * w1
                    a12 += x2 * w1
                    a13 += x3 * w1
                out[r0, o0], out[r0, o1] = a00 * scale[o0], a10 * scale[o1]
                out[r1, o0], out[r1, o1] = a01 * scale[o0], a11 * scale[o1]
                out[r2, o0], out[r2, o1] = a02 * scale[o0], a12 * scale[o1]
                out[r3, o0], out[r3, o1] = a03 * scale[o0], a13 * scale[o1]

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
