"""A barrier that XLA:CPU cannot see through."""

import jax

from ninfer_jax.kernels.cpu.ffi import call, is_available
from ninfer_jax.kernels.cpu.kernel import Kernel, floats

_COPY = Kernel(
    "ninfer_materialise", "ninfer_jax.kernels.cpu.copy_code:copy", {"x": floats(1)}, {"out": floats(1)}
)


def materialise(x: jax.Array) -> jax.Array:
    """``x`` float32, computed once and read by everyone who uses it.

    XLA:CPU drops ``optimization_barrier`` before it fuses, and then computes a cheap-looking value (a
    cosine is one to it) again inside each of its users. Other platforms keep the barrier.
    """
    on_cpu = _copy if is_available() else barrier
    out: jax.Array = jax.lax.platform_dependent(x, cpu=on_cpu, default=barrier)
    return out


def barrier(x: jax.Array) -> jax.Array:
    """``x``, which XLA does not merge across; XLA:CPU drops it."""
    out: jax.Array = jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]
    return out


def _copy(x: jax.Array) -> jax.Array:
    (out,) = call(_COPY, x.reshape(-1), shapes=[(x.size,)])
    return out.reshape(x.shape)
