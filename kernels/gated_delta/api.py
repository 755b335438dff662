"""The two operations of a Gated DeltaNet layer over slots: B rows of T columns, the last of them padding."""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.gated_delta import numba_cpu, pallas_triton, xla


@jax.named_scope("causal_conv")
def causal_conv(
    x: jax.Array, weight: jax.Array, history: jax.Array, slots: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Depthwise causal convolution and SiLU over each row's past: ``y[t] = silu(sum_j w[j] x[t-W+1+j])``.

    x ``[B, T, C]`` · weight ``[W, C]``, the last tap on the current token · history ``[S, W - 1, C]``, the
    pool of raw columns before the row · slots ``[B]`` · lengths ``[B]`` real columns of each row.

    Returns y ``[B, T, C]`` in ``x.dtype`` (sums in float32) and the pool with each row's last real columns;
    a row of length 0 leaves its slot as it was.
    """
    width, channels = weight.shape
    if x.shape[2] != channels or history.shape[1:] != (width - 1, channels):
        raise ValueError(f"causal_conv: x {x.shape}, weight {weight.shape}, history {history.shape}")
    on_cpu = numba_cpu if numba_cpu.supports_conv(x, history) else xla
    y: jax.Array
    y, history = jax.lax.platform_dependent(
        x, weight, history, slots, lengths, cpu=on_cpu.causal_conv, default=xla.causal_conv
    )
    return y, history


def gated_delta_rule(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    beta: jax.Array,
    log_decay: jax.Array,
    rule: jax.Array,
    slots: jax.Array,
    lengths: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The gated delta rule of ``reference.gated_delta_rule`` over a pool of states.

    q, k ``[B, T, Hk, dk]`` as they come from the convolution (normalised here) · v ``[B, T, Hv, dv]`` ·
    beta, log_decay ``[B, T, Hv]`` float32 · rule ``[S, Hv, dk, dv]`` float32 · slots, lengths ``[B]``.

    Returns ``[B, T, Hv, dv]`` float32 (padding columns mean nothing) and the pool after each row's last
    real column. Any split of a sequence into steps gives the same result up to rounding.
    """
    if v.shape[2] % k.shape[2] or rule.shape[1:] != (v.shape[2], k.shape[3], v.shape[3]):
        raise ValueError(f"gated_delta_rule: k {k.shape}, v {v.shape}, state {rule.shape}")
    tokens = (x.astype(jnp.float32) for x in (q, k, v, beta, log_decay))
    on_cpu = numba_cpu if numba_cpu.supports_rule(q, rule) else xla
    on_cuda = pallas_triton if pallas_triton.supports(v.shape[1], rule) else xla
    out, rule = jax.lax.platform_dependent(
        *tokens,
        rule,
        slots,
        lengths,
        cpu=on_cpu.gated_delta_rule,
        cuda=on_cuda.gated_delta_rule,
        default=xla.gated_delta_rule,
    )
    return out, rule
