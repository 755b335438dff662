"""The machine code of the gated delta rule and the convolution. Compiled functions see the operands of
``numba_cpu.py`` as ``a``."""

from typing import Any

import numba
import numpy as np

from ninfer_jax.kernels.cpu.intrinsics import exp
from ninfer_jax.kernels.cpu.tasks import Functions

CHANNELS = 64
"""Value channels of a prefill task: 32 KiB of state at 128 key channels."""
CONV_CHANNELS = 512
"""Channels of a convolution task."""

zero, one, tiny = np.float32(0), np.float32(1), np.float32(1e-6)
fast = numba.njit(fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")


@fast
def inner(a: Any, b: Any) -> Any:
    total = zero
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@fast
def read(state: Any, q: Any, k: Any, by_q: Any, by_k: Any) -> None:
    """``state.T @ q`` and ``state.T @ k``, four rows of the state at a time."""
    width = by_q.shape[0]
    for j in range(width):
        by_q[j] = by_k[j] = zero
    for i in range(0, state.shape[0], 4):
        q0, q1, q2, q3 = q[i], q[i + 1], q[i + 2], q[i + 3]
        k0, k1, k2, k3 = k[i], k[i + 1], k[i + 2], k[i + 3]
        for j in range(width):
            s0, s1, s2, s3 = state[i, j], state[i + 1, j], state[i + 2, j], state[i + 3, j]
            by_q[j] += (q0 * s0 + q1 * s1) + (q2 * s2 + q3 * s3)
            by_k[j] += (k0 * s0 + k1 * s1) + (k2 * s2 + k3 * s3)


@fast
def write(state: Any, decay: Any, k: Any, error: Any) -> None:
    for i in range(state.shape[0]):
        gain = k[i]
        for j in range(error.shape[0]):
            state[i, j] = decay * state[i, j] + gain * error[j]


@numba.njit(error_model="numpy")
def advance(state: Any, q: Any, k: Any, v: Any, beta: Any, log_decay: Any, out: Any) -> None:
    """One head's tokens over some of its channels: q, k ``[T, dk]``, v and out ``[T, channels]``."""
    dk, width = state.shape
    query, key = np.empty(dk, np.float32), np.empty(dk, np.float32)
    by_q, by_k = np.empty(width, np.float32), np.empty(width, np.float32)
    for t in range(q.shape[0]):
        q_scale = np.float32(1) / np.sqrt((inner(q[t], q[t]) + tiny) * np.float32(dk))
        k_scale = np.float32(1) / np.sqrt(inner(k[t], k[t]) + tiny)
        for i in range(dk):
            query[i], key[i] = q[t, i] * q_scale, k[t, i] * k_scale
        decay, overlap = exp(log_decay[t]), inner(query, key)
        read(state, query, key, by_q, by_k)
        for j in range(width):
            error = beta[t] * (v[t, j] - decay * by_k[j])
            out[t, j] = decay * by_q[j] + overlap * error
            by_k[j] = error
        write(state, decay, key, by_k)


@numba.njit(inline="always")
def width_of(v: Any) -> int:
    """Channels of a task: all of a head in decode, where the state is passed over just twice."""
    return v.shape[3] if v.shape[1] == 1 else CHANNELS


@numba.njit
def count_rule(a: Any) -> int:
    v = a.v
    return v.shape[0] * v.shape[2] * ((v.shape[3] + width_of(v) - 1) // width_of(v))


@numba.njit
def run_rule(task: int, a: Any) -> None:
    q, v, lengths, out = a.q, a.v, a.lengths, a.out
    heads, width = v.shape[2], width_of(v)
    parts = (v.shape[3] + width - 1) // width
    row, head, low = task // (heads * parts), task // parts % heads, task % parts * width
    high = min(low + width, v.shape[3])
    key_head, length = head // (heads // q.shape[2]), lengths[row]
    slot = a.rule[a.slots[row], head]
    for t in range(length, v.shape[1]):
        for j in range(low, high):
            out[row, t, head, j] = zero
    if length == 0:
        return
    tokens = (
        q[row, :length, key_head], a.k[row, :length, key_head], v[row, :length, head, low:high],
        a.beta[row, :length, head], a.log_decay[row, :length, head], out[row, :length, head, low:high],
    )  # fmt: skip
    if width == v.shape[3]:
        advance(slot, *tokens)
        return
    state = np.empty((slot.shape[0], high - low), np.float32)
    for i in range(slot.shape[0]):
        for j in range(low, high):
            state[i, j - low] = slot[i, j]
    advance(state, *tokens)
    for i in range(slot.shape[0]):
        for j in range(low, high):
            slot[i, j] = state[i, j - low]


# NumPy's error model: a check for division by zero would keep the loop from being vectorised.
vectorised = numba.njit(fastmath={"contract", "nsz"}, error_model="numpy")


@vectorised
def add_tap(weight: Any, x: Any, total: Any) -> None:
    for c in range(total.shape[0]):
        total[c] += weight[c] * x[c]


@vectorised
def silu(total: Any) -> None:
    for c in range(total.shape[0]):
        x = total[c]
        small = exp(-abs(x))
        total[c] = x * (one if x >= zero else small) / (one + small)


@numba.njit
def count_conv(a: Any) -> int:
    x = a.x
    return x.shape[0] * ((x.shape[2] + CONV_CHANNELS - 1) // CONV_CHANNELS)


@numba.njit
def run_conv(task: int, a: Any) -> None:
    x, weight, out, history = a.x, a.weight, a.out, a.history
    blocks = (x.shape[2] + CONV_CHANNELS - 1) // CONV_CHANNELS
    row, low = task // blocks, task % blocks * CONV_CHANNELS
    high, past = min(low + CONV_CHANNELS, x.shape[2]), weight.shape[0] - 1
    slot, length = a.slots[row], a.lengths[row]
    for t in range(x.shape[1]):
        total = out[row, t, low:high]
        total[:] = zero
        if t >= length:
            continue
        for tap in range(past + 1):
            at = t + tap - past
            if at < 0:
                add_tap(weight[tap, low:high], history[slot, past + at, low:high], total)
            else:
                add_tap(weight[tap, low:high], x[row, at, low:high], total)
        silu(total)
    if length == 0:
        return
    for place in range(past):
        at = length + place - past
        for c in range(low, high):
            history[slot, place, c] = history[slot, past + at, c] if at < 0 else x[row, at, c]


def gated_delta_rule() -> Functions:
    """See ``api.gated_delta_rule``."""
    return Functions(count_rule, run_rule)


def causal_conv() -> Functions:
    """See ``api.causal_conv``."""
    return Functions(count_conv, run_conv)
