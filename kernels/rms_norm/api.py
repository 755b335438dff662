"""``rms_norm``: the norm before every product of a model, and ``add_rms_norm``: the sum before it too.

RMSNorm (Zhang and Sennrich, arXiv 1910.07467) is over the last axis, by ``weight [D]``; its statistics are
float32. ``zero_centred`` weights multiply as ``1 + weight``.
"""

from functools import partial

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.rms_norm import numba_cpu, reference


@jax.named_scope("rms_norm")
def rms_norm(x: jax.Array, weight: jax.Array, epsilon: float, *, zero_centred: bool = False) -> jax.Array:
    """The norm of ``x [..., D]``, in its dtype."""
    _check(x, weight)
    on_cpu = numba_cpu if numba_cpu.supports(x, weight) else reference
    out: jax.Array = jax.lax.platform_dependent(
        x.astype(jnp.float32),
        weight.astype(jnp.float32),
        cpu=partial(on_cpu.rms_norm, epsilon=epsilon, zero_centred=zero_centred),
        default=partial(reference.rms_norm, epsilon=epsilon, zero_centred=zero_centred),
    )
    return out.astype(x.dtype)


@jax.named_scope("add_rms_norm")
def add_rms_norm(
    x: jax.Array, delta: jax.Array, weight: jax.Array, epsilon: float, *, zero_centred: bool = False
) -> tuple[jax.Array, jax.Array]:
    """``x + delta`` of two ``[..., D]``, and its norm, both in their dtype."""
    _check(x, weight)
    if (delta.shape, delta.dtype) != (x.shape, x.dtype):
        raise ValueError(f"add_rms_norm: {delta.dtype}{delta.shape} is to be added to {x.dtype}{x.shape}")
    if not numba_cpu.supports(x, weight):
        total = x + delta
        return total, rms_norm(total, weight, epsilon, zero_centred=zero_centred)
    total, normed = jax.lax.platform_dependent(
        x,
        delta,
        weight,
        cpu=partial(numba_cpu.add_rms_norm, epsilon=epsilon, zero_centred=zero_centred),
        default=partial(reference.add_rms_norm, epsilon=epsilon, zero_centred=zero_centred),
    )
    return total, normed


def _check(x: jax.Array, weight: jax.Array) -> None:
    if x.shape[-1:] != weight.shape:
        raise ValueError(f"rms_norm: {x.shape[-1]} values against a weight of shape {weight.shape}")
