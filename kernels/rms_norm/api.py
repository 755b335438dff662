"""``rms_norm``: the norm before every product of a model."""

from functools import partial

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.rms_norm import numba_cpu, reference


@jax.named_scope("rms_norm")
def rms_norm(x: jax.Array, weight: jax.Array, epsilon: float, *, zero_centred: bool = False) -> jax.Array:
    """RMSNorm (Zhang and Sennrich, arXiv 1910.07467) over the last axis of ``x [..., D]`` by ``weight [D]``,
    in ``x.dtype``; statistics are float32. ``zero_centred`` weights multiply as ``1 + weight``.
    """
    if x.shape[-1:] != weight.shape:
        raise ValueError(f"rms_norm: {x.shape[-1]} values against a weight of shape {weight.shape}")
    on_cpu = numba_cpu if numba_cpu.supports(x, weight) else reference
    out: jax.Array = jax.lax.platform_dependent(
        x.astype(jnp.float32),
        weight.astype(jnp.float32),
        cpu=partial(on_cpu.rms_norm, epsilon=epsilon, zero_centred=zero_centred),
        default=partial(reference.rms_norm, epsilon=epsilon, zero_centred=zero_centred),
    )
    return out.astype(x.dtype)
