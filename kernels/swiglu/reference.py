"""SwiGLU as it is defined; XLA makes one kernel of it on an accelerator."""

import jax
import jax.numpy as jnp


def swiglu(gate_up: jax.Array) -> jax.Array:
    """See ``api.swiglu``."""
    gate, up = jnp.split(gate_up, 2, axis=-1)
    return jax.nn.silu(gate) * up
