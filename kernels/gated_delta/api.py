"""The two operations of a Gated DeltaNet layer over slots: B rows of T columns, the last of them padding."""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.gated_delta import pallas_triton, xla
from ninfer_jax.kernels.gated_delta.reference import l2_normalise
from ninfer_jax.kernels.gated_delta.slots import read_slots, write_slots


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
    columns = x.shape[1]
    past = read_slots(history, _as_gather(slots))[: x.shape[0]]
    window = jnp.concatenate([past.astype(x.dtype), x], axis=1)
    wide, taps = window.astype(jnp.float32), weight.astype(jnp.float32)
    y = jnp.asarray(sum(taps[tap] * wide[:, tap : tap + columns] for tap in range(width)))
    if columns == 1:
        last = window[:, 1:]
    else:
        ends = lengths[:, None] + jnp.arange(width - 1)
        last = jnp.take_along_axis(window, ends[:, :, None], axis=1, mode="promise_in_bounds")
    return jax.nn.silu(y).astype(x.dtype), write_slots(history, slots, lengths > 0, last)


def _as_gather(slots: jax.Array) -> jax.Array:
    """``slots``, or a lone slot twice. XLA:CPU turns a gather of one row into a slice and repeats it inside
    every reader; the readers that the write does not wait for then cost a copy of the whole pool."""
    return jnp.concatenate([slots, slots]) if slots.shape[0] == 1 else slots


@jax.named_scope("gated_delta_rule")
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
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    q, k = l2_normalise(q) * q.shape[-1] ** -0.5, l2_normalise(k)
    if v.shape[1] == 1:
        first = (x[:, 0] for x in (q, k, v, beta, log_decay))
        on_cuda = pallas_triton.one_step if pallas_triton.supports(rule.shape[1:]) else _one_step
        out, rule = jax.lax.platform_dependent(*first, rule, slots, lengths, cuda=on_cuda, default=_one_step)
        return out[:, None], rule
    is_real = jnp.arange(v.shape[1]) < lengths[:, None]
    k, v = (jnp.where(is_real[:, :, None, None], x, 0.0) for x in (k, v))
    beta, log_decay = (jnp.where(is_real[:, :, None], x, 0.0) for x in (beta, log_decay))
    out, state = xla.chunked(q, k, v, beta, log_decay, read_slots(rule, slots))
    return out, write_slots(rule, slots, lengths > 0, state)


def _one_step(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    beta: jax.Array,
    log_decay: jax.Array,
    rule: jax.Array,
    slots: jax.Array,
    lengths: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    out, state = xla.one_step(q, k, v, beta, log_decay, read_slots(rule, slots))
    return out, write_slots(rule, slots, lengths > 0, state)
