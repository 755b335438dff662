"""The rotation as it is defined; XLA makes one kernel of it on an accelerator."""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.rope.heads import split_heads


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """See ``api.rotate``; computed in float32."""
    half = cos.shape[-1]
    wide = x.astype(jnp.float32)
    first, second, rest = wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :]
    cos, sin = cos[..., None, :], sin[..., None, :]
    rotated = (first * cos - second * sin, second * cos + first * sin, rest)
    return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


def rotate_qkv(
    fused: jax.Array, cos: jax.Array, sin: jax.Array, *, num_heads: int, num_kv_heads: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """See ``api.rotate_qkv``."""
    head_dim = fused.shape[-1] // (num_heads + 2 * num_kv_heads)
    q, k, v = split_heads(fused, head_dim, num_heads, num_kv_heads, num_kv_heads)
    return rotate(q, cos, sin), rotate(k, cos, sin), v
