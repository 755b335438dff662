"""What a sparse mixture computes, in the plainest form: every expert on every token, then the chosen ones."""

import jax
import jax.numpy as jnp


def sparse_experts(
    x: jax.Array, gate_up: jax.Array, down: jax.Array, weights: jax.Array, experts: jax.Array
) -> jax.Array:
    """``y[n] = sum_j weights[n, j] down[e] (silu(gate) * up)`` with ``[gate; up] = gate_up[e] x[n]`` and
    ``e = experts[n, j]``. x ``[n, H]`` · gate_up ``[E, 2I, H]`` · down ``[E, H, I]`` · weights, experts
    ``[n, k]``. Float32."""
    gate, up = jnp.split(jnp.einsum("nh,eih->nei", x, gate_up), 2, axis=-1)
    outputs = jnp.einsum("nei,ehi->neh", jax.nn.silu(gate) * up, down)
    chosen = jnp.take_along_axis(outputs, experts[:, :, None], axis=1)
    return jnp.sum(chosen * weights[:, :, None], axis=1)
