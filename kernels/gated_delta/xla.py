"""Convolution and gated delta rule in XLA: the one-step form for decode, the chunked form for prefill.

Both forms work in float32 at the highest matmul precision: the state is a running sum over the whole context,
and rounding its factors to bfloat16 or TF32 is visible in the logits after a few hundred tokens.
"""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.gated_delta.reference import l2_normalise
from ninfer_jax.kernels.gated_delta.slots import read_slots, write_slots

CHUNK = 64
"""Tokens that the chunked form handles as one matrix problem."""


def _matmul(a: jax.Array, b: jax.Array, *, transpose_a: bool = False, transpose_b: bool = False) -> jax.Array:
    """Batched product over the last two axes; a transposed operand is read, never written out."""
    batch = tuple(range(a.ndim - 2))
    contract = (a.ndim - 2 if transpose_a else a.ndim - 1, b.ndim - 1 if transpose_b else b.ndim - 2)
    return jax.lax.dot_general(
        a, b, (((contract[0],), (contract[1],)), (batch, batch)), precision=jax.lax.Precision.HIGHEST
    )


def one_step(
    q: jax.Array, k: jax.Array, v: jax.Array, beta: jax.Array, log_decay: jax.Array, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One token a row. q, k ``[B, Hk, dk]`` normalised and scaled · v ``[B, Hv, dv]`` · beta, log_decay
    ``[B, Hv]`` · state ``[B, Hv, dk, dv]``. Returns out ``[B, Hv, dv]`` and the new state.

    Both reads of the state use its old value, so that it is read once for them and once for the update:
    the new state's answer is ``S'^T q = e S^T q + (k . q) d`` with ``d = beta (v - e S^T k)``.
    """
    rows, heads, dk, dv = state.shape
    group = heads // k.shape[1]
    readers = jnp.repeat(jnp.stack([q, k], axis=2), group, axis=1).reshape(rows * heads, 2, dk)
    overlap = jnp.repeat(jnp.sum(q * k, axis=-1), group, axis=1).reshape(rows * heads, 1)
    flat = state.reshape(rows * heads, dk, dv)
    decay = jnp.exp(log_decay).reshape(rows * heads, 1)
    read = _matmul(readers, flat) * decay[..., None]
    error = beta.reshape(rows * heads, 1) * (v.reshape(rows * heads, dv) - read[:, 1])
    out = read[:, 0] + overlap * error
    new = flat * decay[..., None] + readers[:, 1, :, None] * error[:, None, :]
    return out.reshape(rows, heads, dv), new.reshape(state.shape)


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
    """See ``api.gated_delta_rule``."""
    q, k = normalise(q, k)
    state = read_slots(rule, slots)
    if v.shape[1] == 1:
        out, state = one_step(q[:, 0], k[:, 0], v[:, 0], beta[:, 0], log_decay[:, 0], state)
        return out[:, None], write_slots(rule, slots, lengths > 0, state)
    is_real = jnp.arange(v.shape[1]) < lengths[:, None]
    k, v = (jnp.where(is_real[:, :, None, None], x, 0.0) for x in (k, v))
    beta, log_decay = (jnp.where(is_real[:, :, None], x, 0.0) for x in (beta, log_decay))
    out, state = chunked(q, k, v, beta, log_decay, state)
    return out, write_slots(rule, slots, lengths > 0, state)


def normalise(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
    """q of length ``dk ** -0.5``, k of length one."""
    return l2_normalise(q) * q.shape[-1] ** -0.5, l2_normalise(k)


def causal_conv(
    x: jax.Array, weight: jax.Array, history: jax.Array, slots: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """See ``api.causal_conv``."""
    width, columns = weight.shape[0], x.shape[1]
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


def _to_chunks(x: jax.Array, chunk: int) -> jax.Array:
    """``[B, T, heads, ...] -> [B, T / chunk, heads, chunk, ...]``."""
    rows, columns = x.shape[:2]
    return jnp.swapaxes(x.reshape(rows, columns // chunk, chunk, *x.shape[2:]), 2, 3)


def chunked(
    q: jax.Array, k: jax.Array, v: jax.Array, beta: jax.Array, log_decay: jax.Array, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Many tokens a row; shapes as in ``reference.gated_delta_rule``, q and k normalised and scaled.

    The chunked ("WY") form of arXiv 2412.06464, section 3.3. In one chunk, with G the running sum of
    log_decay and P[i, j] = exp(G[i] - G[j]) for i >= j: the corrections N that its tokens write satisfy
    ``(I + tril(beta k k^T P, -1)) N = beta v - (beta e^G k) S``. The triangular systems of all chunks are
    solved together; only the products with the state go chunk by chunk. Tokens whose k, v, beta and
    log_decay are zero change nothing.
    """
    rows, columns, heads, dv = v.shape
    group = heads // k.shape[2]
    chunk = min(CHUNK, columns)
    if padding := -columns % chunk:
        q, k, v, beta, log_decay = (
            jnp.pad(x, ((0, 0), (0, padding)) + ((0, 0),) * (x.ndim - 2)) for x in (q, k, v, beta, log_decay)
        )
    q, k, v, beta, log_decay = (_to_chunks(x, chunk) for x in (q, k, v, beta, log_decay))
    total = jnp.cumsum(log_decay, axis=-1)
    lower = jnp.tril(jnp.ones((chunk, chunk), bool))
    strictly_lower = jnp.tril(lower, -1)
    pairwise = jnp.exp(jnp.where(lower, total[..., :, None] - total[..., None, :], -jnp.inf))
    products = _matmul(jnp.concatenate([q, k], axis=-2), k, transpose_b=True)
    products = jnp.repeat(products, group, axis=2)
    attention = products[..., :chunk, :] * pairwise
    system = jnp.where(strictly_lower, products[..., chunk:, :] * pairwise * beta[..., None], 0.0)

    q, k = jnp.repeat(q, group, axis=2), jnp.repeat(k, group, axis=2)
    from_start = jnp.exp(total)[..., None]
    sides = jnp.concatenate([v * beta[..., None], k * (beta[..., None] * from_start)], axis=-1)
    solved = jax.lax.linalg.triangular_solve(system, sides, left_side=True, lower=True, unit_diagonal=True)
    values, keys = solved[..., :dv], solved[..., dv:]
    to_end = k * jnp.exp(total[..., -1:] - total)[..., None]
    decay = jnp.exp(total[..., -1])[..., None, None]

    readers = jnp.concatenate([q * from_start, keys], axis=-2)
    per_chunk = [jnp.moveaxis(x, 1, 0) for x in (readers, attention, to_end, decay)]

    def step(index: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        state, out = carry
        readers, attention, to_end, decay, values = (
            jax.lax.dynamic_index_in_dim(x, index, keepdims=False) for x in (*per_chunk, out)
        )
        read = _matmul(readers, state)  # the queries' and the keys' view of the old state
        new = values - read[..., chunk:, :]
        answers = read[..., :chunk, :] + _matmul(attention, new)
        out = jax.lax.dynamic_update_index_in_dim(out, answers, index, 0)
        return state * decay + _matmul(to_end, new, transpose_a=True), out

    # Answers replace the values they come from. A buffer of their own would be zeroed ahead of the loop, and
    # XLA:GPU zeroes those of all layers before the first one runs.
    values = jnp.moveaxis(values, 1, 0)
    state, out = jax.lax.fori_loop(0, values.shape[0], step, (state, values))
    out = jnp.swapaxes(jnp.moveaxis(out, 0, 1), 2, 3).reshape(rows, -1, heads, dv)
    return out[:, :columns], state
