"""The gated delta rule, its convolution, and the norm, at the shapes of the models."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.gated_delta import pallas_triton, reference, write_slots, xla
from ninfer_jax.kernels.gated_delta.slots import read_slots
from ninfer_jax.kernels.rms_norm import reference as norm_reference
from ninfer_jax.kernels.rms_norm import rms_norm
from ninfer_jax.models.qwen3_5_config import Qwen35Config
from profiles.device.kernel import PALLAS, XLA, Kernel
from profiles.device.sizes import Grid
from profiles.device.timing import Call

MAX_IMAGES = 128
STEP_TOLERANCE, CHUNK_TOLERANCE = 1e-4, 1e-3
"""Everything is float32; the chunked form solves a triangular system besides."""
ROUNDED = 1e-2
"""Of results in bfloat16."""


class RuleInputs(NamedTuple):
    """One step over ``slots [n, B]``: call i writes the slots ``i % n``."""

    tokens: tuple[jax.Array, ...]
    slots: jax.Array
    lengths: jax.Array


def kernels(name: str, config: Qwen35Config, grid: Grid, *, interpret: bool) -> list[Kernel]:
    """Decode of few rows, prefill of one."""
    few, many = grid.rows[:-1], grid.rows[-1]
    steps = [(f"decode B={rows}", rows, 1) for rows in few] + [(f"prefill {many}", 1, many)]
    made = [
        _rule(f"delta rule {what}, {name}", config, grid, rows, columns, interpret)
        for what, rows, columns in steps
    ]
    made += [_conv(f"causal conv {what}, {name}", config, rows, columns) for what, rows, columns in steps]
    made += [_norm(f"RMSNorm of {rows:,}, {name}", config.hidden_size, rows) for rows in grid.rows]
    return made


def _rule(label: str, config: Qwen35Config, grid: Grid, rows: int, columns: int, interpret: bool) -> Kernel:
    key_heads, (heads, dk, dv) = config.linear_key_heads, config.rule_shape
    image_bytes = heads * dk * dv * 4
    num_steps = max(1, min(MAX_IMAGES, grid.rotated // image_bytes) // rows)

    def make() -> tuple[RuleInputs, jax.Array]:
        keys = jax.random.split(jax.random.key(0), 6)
        wide = (rows, columns)
        q, k = (jax.random.normal(key, (*wide, key_heads, dk)) for key in keys[:2])
        v = jax.random.normal(keys[2], (*wide, heads, dv))
        beta = jax.nn.sigmoid(jax.random.normal(keys[3], (*wide, heads)))
        log_decay = -0.3 * jax.random.exponential(keys[4], (*wide, heads))
        slots = jnp.arange(num_steps * rows, dtype=jnp.int32).reshape(num_steps, rows)
        rule = jax.random.normal(keys[5], (num_steps * rows, heads, dk, dv))
        return RuleInputs((q, k, v, beta, log_decay), slots, jnp.full(rows, columns, jnp.int32)), rule

    forms: dict[str, Call] = {XLA: partial(_slot_call, xla.gated_delta_rule)}
    if pallas_triton.supports(columns, jax.eval_shape(make)[1]):
        form = partial(pallas_triton.gated_delta_rule, interpret=interpret)
        forms = {PALLAS: partial(_slot_call, form), **forms}
    token_bytes = 4 * (2 * key_heads * dk + 2 * heads * dv + 2 * heads)
    return Kernel(
        name=label,
        make=make,
        forms=forms,
        reference=_rule_reference,
        tolerance=STEP_TOLERANCE if columns == 1 else CHUNK_TOLERANCE,
        nbytes=rows * (2 * image_bytes + columns * token_bytes),
        operations=7 * rows * columns * heads * dk * dv,
        untimed=(PALLAS,) if interpret else (),
    )


def _slot_call(form: Any, inputs: RuleInputs, pool: jax.Array, index: jax.Array) -> tuple[Any, jax.Array]:
    out, pool = form(*inputs.tokens, pool, inputs.slots[index % inputs.slots.shape[0]], inputs.lengths)
    return out, pool


def _rule_reference(inputs: RuleInputs, pool: jax.Array, index: jax.Array) -> tuple[Any, jax.Array]:
    slots = inputs.slots[index % inputs.slots.shape[0]]
    q, k, v, beta, log_decay = inputs.tokens
    out, state = reference.gated_delta_rule(q, k, v, beta, log_decay, read_slots(pool, slots))
    return out, write_slots(pool, slots, inputs.lengths > 0, state)


def _conv(label: str, config: Qwen35Config, rows: int, columns: int) -> Kernel:
    past, channels = config.conv_shape
    num_slots = 8 * rows

    def make() -> tuple[RuleInputs, jax.Array]:
        keys = jax.random.split(jax.random.key(0), 3)
        x = jax.random.normal(keys[0], (rows, columns, channels), jnp.bfloat16)
        weight = jax.random.normal(keys[1], (past + 1, channels), jnp.bfloat16)
        slots = jnp.arange(num_slots, dtype=jnp.int32).reshape(-1, rows)
        history = jax.random.normal(keys[2], (num_slots, past, channels), jnp.bfloat16)
        return RuleInputs((x, weight), slots, jnp.full(rows, columns, jnp.int32)), history

    return Kernel(
        name=label,
        make=make,
        forms={XLA: partial(_slot_call, xla.causal_conv)},
        reference=_conv_reference,
        tolerance=ROUNDED,
        nbytes=2 * channels * (2 * rows * (columns + past) + past + 1),
        operations=2 * rows * columns * channels * (past + 1),
    )


def _conv_reference(inputs: RuleInputs, history: jax.Array, index: jax.Array) -> tuple[Any, jax.Array]:
    slots = inputs.slots[index % inputs.slots.shape[0]]
    x, weight = (array.astype(jnp.float32) for array in inputs.tokens)
    y, last = reference.causal_conv(x, weight, read_slots(history, slots).astype(jnp.float32))
    return y, write_slots(history, slots, inputs.lengths > 0, last)


def _norm(label: str, hidden: int, rows: int) -> Kernel:
    def make() -> tuple[tuple[jax.Array, jax.Array], tuple[()]]:
        keys = jax.random.split(jax.random.key(0), 2)
        x = jax.random.normal(keys[0], (8, rows, hidden), jnp.bfloat16)
        return (x, 0.1 * jax.random.normal(keys[1], (hidden,), jnp.bfloat16)), ()

    return Kernel(
        name=label,
        make=make,
        forms={XLA: partial(_norm_call, partial(rms_norm, epsilon=1e-6, zero_centred=True))},
        reference=partial(_norm_call, _float32_norm),
        tolerance=ROUNDED,
        nbytes=2 * hidden * (2 * rows + 1),
    )


def _norm_call(form: Any, inputs: Any, held: Any, index: jax.Array) -> tuple[jax.Array, Any]:
    x, weight = inputs
    return form(x[index % x.shape[0]], weight), held


def _float32_norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    wide = (x.astype(jnp.float32), weight.astype(jnp.float32))
    return norm_reference.rms_norm(*wide, epsilon=1e-6, zero_centred=True)
