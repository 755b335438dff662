"""One decode step of the gated delta rule on NVIDIA GPUs, in place: a Pallas (Triton) kernel over slots.

A program owns some value channels of one head of one row: it reads that part of the slot once, and writes
it once, back where it stood. The pool is aliased, so nothing of its size is touched.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from ninfer_jax.kernels.gated_delta.reference import EPSILON

NAME = "gated_delta_step"
CHANNELS = 32
"""Value channels of one program: enough programs to fill a GPU with one row, coalesced rows of 128 bytes."""
_struct: Any = jax.ShapeDtypeStruct


def supports(columns: int, rule: jax.Array) -> bool:
    """Decode only; Triton loads powers of two."""
    _, _, dk, dv = rule.shape
    return columns == 1 and dk & (dk - 1) == 0 and dk >= 16 and dv % CHANNELS == 0


def gated_delta_rule(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    beta: jax.Array,
    log_decay: jax.Array,
    rule: jax.Array,
    slots: jax.Array,
    lengths: jax.Array,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """See ``api.gated_delta_rule``; every operand but the last two is float32."""
    q, k, v, beta, log_decay = (x[:, 0] for x in (q, k, v, beta, log_decay))
    rows, heads, dv = v.shape
    dk, group = q.shape[2], heads // q.shape[1]

    def of_head(size: int) -> pl.BlockSpec:
        return pl.BlockSpec((None, None, size), lambda row, head, part: (row, head // group, 0))

    channels = pl.BlockSpec((None, None, CHANNELS), lambda row, head, part: (row, head, part))
    out, rule = pl.pallas_call(
        _kernel,
        grid=(rows, heads, dv // CHANNELS),
        in_specs=[
            of_head(dk),
            of_head(dk),
            channels,
            *(_whole(array) for array in (beta, log_decay, slots, lengths, rule)),
        ],
        out_specs=[channels, _whole(rule)],
        out_shape=[_struct(v.shape, jnp.float32), _struct(rule.shape, jnp.float32)],
        input_output_aliases={7: 1},
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name=NAME,
    )(q, k, v, beta, log_decay, slots, lengths, rule)
    return out[:, None], rule


def _whole(array: jax.Array) -> pl.BlockSpec:
    """An operand that every program reads where it wants to."""
    return pl.BlockSpec(array.shape, lambda *_: (0,) * array.ndim)


def _unit(x: jax.Array) -> jax.Array:
    """``reference.l2_normalise`` of one head; every program does it again: fewer launches, no bytes."""
    return x * jax.lax.rsqrt(jnp.sum(x * x) + EPSILON)


def _kernel(
    q_ref: Any,
    k_ref: Any,
    v_ref: Any,
    beta_ref: Any,
    log_decay_ref: Any,
    slots_ref: Any,
    lengths_ref: Any,
    rule_ref: Any,
    out_ref: Any,
    new_rule_ref: Any,
) -> None:
    row, head = pl.program_id(0), pl.program_id(1)
    channels = pl.ds(pl.program_id(2) * CHANNELS, CHANNELS)
    slot = slots_ref[row]
    q, k = _unit(q_ref[...]) * q_ref.shape[0] ** -0.5, _unit(k_ref[...])
    state = rule_ref[slot, head, :, channels] * jnp.exp(log_decay_ref[row, head])
    error = beta_ref[row, head] * (v_ref[...] - jnp.sum(state * k[:, None], axis=0))
    state = state + k[:, None] * error[None, :]
    out_ref[...] = jnp.sum(state * q[:, None], axis=0)

    @pl.when(lengths_ref[row] > 0)
    def _() -> None:
        new_rule_ref[slot, head, :, channels] = state
