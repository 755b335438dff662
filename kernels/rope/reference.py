"""The rotation as it is defined; XLA makes one kernel of it on an accelerator."""

import jax
import jax.numpy as jnp


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
    heads = fused.reshape(*fused.shape[:2], num_heads + 2 * num_kv_heads, -1)
    q, k, v = jnp.split(heads, (num_heads, num_heads + num_kv_heads), axis=2)
    return rotate(q, cos, sin), rotate(k, cos, sin), v
