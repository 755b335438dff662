"""The norm on the CPU: one call where XLA makes four."""

import functools

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.cpu import Kernel, call, floats, is_available


@functools.cache
def _kernel(zero_centred: bool) -> Kernel:
    return Kernel(
        "ninfer_rms_norm_zero_centred" if zero_centred else "ninfer_rms_norm",
        "ninfer_jax.kernels.rms_norm.numba_code:rms_norm",
        {"x": floats(2), "weight": floats(1), "epsilon": floats(1)},
        {"out": floats(2)},
        parameters=(zero_centred,),
    )


def supports(x: jax.Array, weight: jax.Array) -> bool:
    """Whether this host can run the kernel, and nothing would have to be converted for it."""
    return x.dtype == weight.dtype == jnp.float32 and is_available()


def rms_norm(x: jax.Array, weight: jax.Array, *, epsilon: float, zero_centred: bool) -> jax.Array:
    """See ``api.rms_norm``."""
    rows = x.reshape(-1, x.shape[-1])
    (out,) = call(_kernel(zero_centred), rows, weight, jnp.full(1, epsilon, jnp.float32), shapes=[rows.shape])
    return out.reshape(x.shape)
