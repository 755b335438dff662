"""A barrier that XLA:CPU cannot see through."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.kernels.cpu.ffi import Buffer, is_available, register, struct


@functools.cache
def _kernel() -> tuple[Any, Any]:
    import numba

    @numba.njit
    def count(x: Any, out: Any) -> int:
        return 1

    @numba.njit
    def run(task: int, x: Any, out: Any) -> None:
        out[:] = x

    return count, run


def materialise(x: jax.Array) -> jax.Array:
    """``x`` float32, computed once and read by everyone who uses it.

    XLA:CPU drops ``optimization_barrier`` before it fuses, and then computes a cheap-looking value (a
    cosine is one to it) again inside each of its users. Other platforms keep the barrier.
    """
    on_cpu = _copy if is_available() else _barrier
    out: jax.Array = jax.lax.platform_dependent(x, cpu=on_cpu, default=_barrier)
    return out


def _barrier(x: jax.Array) -> jax.Array:
    out: jax.Array = jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]
    return out


def _copy(x: jax.Array) -> jax.Array:
    count, run = _kernel()
    buffer = (Buffer(np.float32, 1),)
    register("ninfer_materialise", count=count, run=run, operands=buffer, results=buffer)
    call: Any = jax.ffi.ffi_call("ninfer_materialise", struct((x.size,), jnp.float32))
    out: jax.Array = call(x.reshape(-1)).reshape(x.shape)
    return out
