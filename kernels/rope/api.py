"""Rotary position embedding (Su et al., arXiv 2104.09864) of queries and keys.

Dimension i of a head pairs with ``i + R / 2`` for its first R dimensions (the half-split layout of Hugging
Face checkpoints); the others pass through. cos and sin are ``[B, T, R / 2]``, one row a token.
"""

from functools import partial

import jax

from ninfer_jax.kernels.rope import numba_cpu, reference


@jax.named_scope("rope")
def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Every head of ``x [B, T, heads, D]``, in its dtype."""
    _check(x.shape[:2], x.shape[-1], cos, sin)
    on_cpu = numba_cpu if numba_cpu.supports(x, cos) else reference
    out: jax.Array = jax.lax.platform_dependent(x, cos, sin, cpu=on_cpu.rotate, default=reference.rotate)
    return out


@jax.named_scope("rope")
def rotate_qkv(
    fused: jax.Array, cos: jax.Array, sin: jax.Array, *, num_heads: int, num_kv_heads: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A fused projection ``[B, T, (N + 2K) D]`` as q ``[B, T, N, D]``, k and v ``[B, T, K, D]``; q and k are
    rotated."""
    heads = num_heads + 2 * num_kv_heads
    if fused.shape[-1] % heads:
        raise ValueError(f"rope: {fused.shape[-1]} values are not {heads} heads")
    _check(fused.shape[:2], fused.shape[-1] // heads, cos, sin)
    on_cpu = numba_cpu if numba_cpu.supports(fused, cos) else reference
    q, k, v = jax.lax.platform_dependent(
        fused,
        cos,
        sin,
        cpu=partial(on_cpu.rotate_qkv, num_heads=num_heads, num_kv_heads=num_kv_heads),
        default=partial(reference.rotate_qkv, num_heads=num_heads, num_kv_heads=num_kv_heads),
    )
    return q, k, v


def _check(step: tuple[int, ...], head_dim: int, cos: jax.Array, sin: jax.Array) -> None:
    if not (cos.shape == sin.shape and cos.shape[:-1] == step and 2 * cos.shape[-1] <= head_dim):
        raise ValueError(
            f"rope: cos {cos.shape} and sin {sin.shape} for heads of {head_dim} values at {step} tokens"
        )
