"""SwiGLU on the CPU: one call where XLA compiles a loop for each layer."""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.cpu import Kernel, call, floats, is_available

_KERNEL = Kernel(
    "ninfer_swiglu",
    "ninfer_jax.kernels.swiglu.numba_code:swiglu",
    {"gate_up": floats(2)},
    {"out": floats(2)},
)


def supports(gate_up: jax.Array) -> bool:
    """Whether this host can run the kernel, and nothing would have to be converted for it."""
    return gate_up.dtype == jnp.float32 and is_available()


def swiglu(gate_up: jax.Array) -> jax.Array:
    """See ``api.swiglu``."""
    rows = gate_up.reshape(-1, gate_up.shape[-1])
    inner = gate_up.shape[-1] // 2
    (out,) = call(_KERNEL, rows, shapes=[(rows.shape[0], inner)])
    return out.reshape(*gate_up.shape[:-1], inner)
