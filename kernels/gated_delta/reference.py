"""What this operation computes, in the plainest form: one token after another, without slots or padding."""

import jax
import jax.numpy as jnp

EPSILON = 1e-6


def l2_normalise(x: jax.Array) -> jax.Array:
    """``x / sqrt(sum(x^2) + 1e-6)`` over the last axis."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + EPSILON)


def causal_conv(x: jax.Array, weight: jax.Array, history: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``y[t, c] = silu(sum_j weight[j, c] * x[t - W + 1 + j, c])``, ``history`` standing before ``x``.

    x ``[B, T, C]`` · weight ``[W, C]`` · history ``[B, W - 1, C]``. Returns y and the new history.
    """
    window = jnp.concatenate([history, x], axis=1)
    width, columns = weight.shape[0], x.shape[1]
    y = sum(weight[tap] * window[:, tap : tap + columns] for tap in range(width))
    return jax.nn.silu(jnp.asarray(y)), window[:, columns:]


def gated_delta_rule(
    q: jax.Array, k: jax.Array, v: jax.Array, beta: jax.Array, log_decay: jax.Array, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The recurrence of Gated DeltaNet (arXiv 2412.06464), per value head and token, in float32:

        S <- exp(log_decay) S;   S <- S + k (beta (v - S^T k))^T;   out = S^T q

    with q and k normalised to length one and q divided by sqrt(dk). Value head j uses key head
    ``j // (Hv / Hk)``. q, k ``[B, T, Hk, dk]`` · v ``[B, T, Hv, dv]`` · beta, log_decay ``[B, T, Hv]`` ·
    state ``[B, Hv, dk, dv]``. Returns out ``[B, T, Hv, dv]`` and the state after the last token.
    """
    group = v.shape[2] // k.shape[2]
    q = jnp.repeat(l2_normalise(q) * q.shape[-1] ** -0.5, group, axis=2)
    k = jnp.repeat(l2_normalise(k), group, axis=2)

    def step(state: jax.Array, token: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        q, k, v, beta, log_decay = token
        state = state * jnp.exp(log_decay)[..., None, None]
        error = beta[..., None] * (v - jnp.sum(state * k[..., None], axis=-2))
        state = state + k[..., None] * error[..., None, :]
        return state, jnp.sum(state * q[..., None], axis=-2)

    tokens = tuple(jnp.moveaxis(x, 1, 0) for x in (q, k, v, beta, log_decay))
    state, out = jax.lax.scan(step, state, tokens)
    return jnp.moveaxis(out, 0, 1), state
