"""The convolution and the gated delta rule on the CPU: one kernel each, for decode rows and prefill chunks.

Tokens are taken one after another, so that a state does not depend on the step, the batch or the bucket its
tokens came in, bit for bit. A task of the rule owns some value channels of one head: its part of the state
stays in the first-level cache for all of the row's tokens, and a part never needs another. Slots are
updated in place; padding columns are not computed.
"""

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.cpu import Kernel, call, floats, integers, is_available

_RULE = Kernel(
    "ninfer_gated_delta_rule",
    "ninfer_jax.kernels.gated_delta.numba_code:gated_delta_rule",
    {
        "q": floats(4),
        "k": floats(4),
        "v": floats(4),
        "beta": floats(3),
        "log_decay": floats(3),
        "old": floats(4),
        "slots": integers(1),
        "lengths": integers(1),
    },
    {"out": floats(4), "rule": floats(4)},
    aliases={"rule": "old"},
)

_CONV = Kernel(
    "ninfer_causal_conv",
    "ninfer_jax.kernels.gated_delta.numba_code:causal_conv",
    {
        "x": floats(3),
        "weight": floats(2),
        "old": floats(3),
        "slots": integers(1),
        "lengths": integers(1),
    },
    {"out": floats(3), "history": floats(3)},
    aliases={"history": "old"},
)


def supports_rule(q: jax.Array, rule: jax.Array) -> bool:
    """Whether this host can run the rule's kernel: a float32 state, whose rows are read four at a time."""
    return q.shape[-1] % 4 == 0 and rule.dtype == jnp.float32 and is_available()


def supports_conv(x: jax.Array, history: jax.Array) -> bool:
    """Whether this host can run the convolution's kernel, and nothing would have to be converted for it."""
    return x.dtype == history.dtype == jnp.float32 and is_available()


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
    """See ``api.gated_delta_rule``. Outputs of padding columns are zero."""
    tokens = [x.astype(jnp.float32) for x in (q, k, v, beta, log_decay)]
    out, rule = call(_RULE, *tokens, rule, slots, lengths, shapes=[v.shape, rule.shape])
    return out, rule


def causal_conv(
    x: jax.Array, weight: jax.Array, history: jax.Array, slots: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """See ``api.causal_conv``. Outputs of padding columns are zero."""
    weight = weight.astype(jnp.float32)
    out, history = call(_CONV, x, weight, history, slots, lengths, shapes=[x.shape, history.shape])
    return out, history
