"""``swiglu``: what stands between the two products of a feed-forward."""

import jax

from ninfer_jax.kernels.swiglu import numba_cpu, reference


@jax.named_scope("swiglu")
def swiglu(gate_up: jax.Array) -> jax.Array:
    """``silu(gate) * up`` (Shazeer, arXiv 2002.05202) of a fused projection ``[..., 2I] -> [..., I]``, gate
    first, in its dtype."""
    if gate_up.shape[-1] % 2:
        raise ValueError(f"swiglu: {gate_up.shape[-1]} values are no gate and up of one size")
    on_cpu = numba_cpu if numba_cpu.supports(gate_up) else reference
    out: jax.Array = jax.lax.platform_dependent(gate_up, cpu=on_cpu.swiglu, default=reference.swiglu)
    return out
