"""The norm as it is defined; XLA makes one kernel of it on an accelerator."""

import jax
import jax.numpy as jnp


def rms_norm(x: jax.Array, weight: jax.Array, *, epsilon: float, zero_centred: bool) -> jax.Array:
    """See ``api.rms_norm``; everything float32."""
    gain = 1.0 + weight if zero_centred else weight
    variance = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(variance + epsilon) * gain


def add_rms_norm(
    x: jax.Array, delta: jax.Array, weight: jax.Array, *, epsilon: float, zero_centred: bool
) -> tuple[jax.Array, jax.Array]:
    """See ``api.add_rms_norm``; everything float32."""
    total = x + delta
    return total, rms_norm(total, weight, epsilon=epsilon, zero_centred=zero_centred)
