"""The norm on the CPU: one call where XLA makes four."""

import functools

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.cpu import Kernel, call, floats, is_available

_CODE = "ninfer_jax.kernels.rms_norm.numba_code"
_WEIGHT = {"weight": floats(1), "epsilon": floats(1)}


@functools.cache
def _norm(zero_centred: bool) -> Kernel:
    return Kernel(
        "ninfer_rms_norm_zero_centred" if zero_centred else "ninfer_rms_norm",
        f"{_CODE}:rms_norm",
        {"x": floats(2), **_WEIGHT},
        {"out": floats(2)},
        parameters=(zero_centred,),
    )


@functools.cache
def _add_norm(zero_centred: bool) -> Kernel:
    return Kernel(
        "ninfer_add_rms_norm_zero_centred" if zero_centred else "ninfer_add_rms_norm",
        f"{_CODE}:add_rms_norm",
        {"x": floats(2), "delta": floats(2), **_WEIGHT},
        {"total": floats(2), "out": floats(2)},
        parameters=(zero_centred,),
    )


def supports(x: jax.Array, weight: jax.Array) -> bool:
    """Whether this host can run the kernels, and nothing would have to be converted for them."""
    return x.dtype == weight.dtype == jnp.float32 and is_available()


def rms_norm(x: jax.Array, weight: jax.Array, *, epsilon: float, zero_centred: bool) -> jax.Array:
    """See ``api.rms_norm``."""
    rows = x.reshape(-1, x.shape[-1])
    (out,) = call(_norm(zero_centred), rows, weight, _number(epsilon), shapes=[rows.shape])
    return out.reshape(x.shape)


def add_rms_norm(
    x: jax.Array, delta: jax.Array, weight: jax.Array, *, epsilon: float, zero_centred: bool
) -> tuple[jax.Array, jax.Array]:
    """See ``api.add_rms_norm``."""
    rows, deltas = (array.reshape(-1, x.shape[-1]) for array in (x, delta))
    kernel, number = _add_norm(zero_centred), _number(epsilon)
    total, out = call(kernel, rows, deltas, weight, number, shapes=[rows.shape] * 2)
    return total.reshape(x.shape), out.reshape(x.shape)


def _number(value: float) -> jax.Array:
    return jnp.full(1, value, jnp.float32)
