"""Products with bfloat16 and int8 weights, and sparse experts, at the shapes of the models."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.config import WeightFormat
from ninfer_jax.kernels.linear import Matrix, linear, stored_values
from ninfer_jax.kernels.linear import reference as linear_reference
from ninfer_jax.kernels.moe import pallas_triton, xla
from ninfer_jax.kernels.moe import reference as moe_reference
from ninfer_jax.models.qwen3_5_config import Qwen35Config
from profiles.device.kernel import PALLAS, XLA, Kernel
from profiles.device.random_model import random_matrix
from profiles.device.sizes import Grid
from profiles.device.timing import Call

MAX_MATRICES = 4
VARIANTS = 8
"""Different inputs, one after another."""
PRODUCT_TOLERANCE, EXPERT_TOLERANCE = 1e-2, 2e-2
"""Results are rounded to bfloat16; between an expert's two products there is one more rounding."""
DTYPES: Mapping[WeightFormat, str] = {"bf16": "bfloat16", "int8": "int8"}


def product_kernels(config: Qwen35Config, grid: Grid, weights: WeightFormat) -> list[Kernel]:
    """The three widest products of a dense layer and the head."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: Mapping[str, tuple[int, int]] = {
        "gate and up": (2 * inner, hidden),
        "down": (hidden, inner),
        "delta projection": (config.conv_shape[1] + config.value_width, hidden),
    }
    made = [
        _product(f"{what} {weights}, {rows:,} rows", shape, rows, weights, grid)
        for rows in grid.rows
        for what, shape in shapes.items()
    ]
    head = (config.vocab_size, hidden)
    return made + [
        _product(f"head {weights}, {rows} rows", head, rows, weights, grid) for rows in grid.rows[:-1]
    ]


def _product(label: str, shape: tuple[int, int], rows: int, weights: WeightFormat, grid: Grid) -> Kernel:
    size = shape[0] * shape[1] * (1 if weights == "int8" else 2)
    calls = max(1, min(MAX_MATRICES, -(-grid.rotated // size)))

    def make() -> tuple[tuple[jax.Array, tuple[Matrix, ...]], tuple[()]]:
        keys = jax.random.split(jax.random.key(0), calls + 1)
        x = jax.random.normal(keys[0], (VARIANTS, rows, shape[1]), jnp.bfloat16)
        return (x, tuple(random_matrix(key, shape, DTYPES[weights]) for key in keys[1:])), ()

    return Kernel(
        name=label,
        make=make,
        forms={XLA: partial(_product_call, linear)},
        reference=partial(_product_call, _float32_product),
        tolerance=PRODUCT_TOLERANCE,
        nbytes=size + 2 * rows * sum(shape),
        operations=2 * rows * shape[0] * shape[1],
        calls=calls,
    )


def _product_call(form: Any, inputs: Any, held: Any, index: jax.Array) -> tuple[tuple[jax.Array, ...], Any]:
    x, matrices = inputs
    return tuple(form(x[(index + n) % VARIANTS], matrix) for n, matrix in enumerate(matrices)), held


def _float32_product(x: jax.Array, matrix: Matrix) -> jax.Array:
    return linear_reference.linear(x.astype(jnp.float32), matrix)


class ExpertInputs(NamedTuple):
    """Call i takes the tokens ``x [n, T, H]`` and ``experts [n, T, k]`` of ``i % n``."""

    x: jax.Array
    experts: jax.Array
    gains: jax.Array
    gate_up: Matrix
    down: Matrix


def expert_kernels(
    config: Qwen35Config, grid: Grid, weights: WeightFormat, *, interpret: bool
) -> list[Kernel]:
    return [_experts(config, rows, weights, interpret) for rows in grid.rows]


def _experts(config: Qwen35Config, rows: int, weights: WeightFormat, interpret: bool) -> Kernel:
    assert config.experts is not None
    count, top_k, inner = config.experts.count, config.experts.top_k, config.experts.intermediate_size
    hidden = config.hidden_size
    rng = np.random.default_rng(0)
    chosen = rng.random((VARIANTS, rows, count)).argsort(axis=-1)[..., :top_k].astype(np.int32)
    distinct = float(np.mean([len(np.unique(variant)) for variant in chosen]))

    def make() -> tuple[ExpertInputs, tuple[()]]:
        keys = jax.random.split(jax.random.key(0), 3)
        x = jax.random.normal(keys[0], (VARIANTS, rows, hidden), jnp.bfloat16)
        gains = jnp.full((rows, top_k), 1 / top_k, jnp.float32)
        gate_up = random_matrix(keys[1], (count, 2 * inner, hidden), DTYPES[weights])
        down = random_matrix(keys[2], (count, hidden, inner), DTYPES[weights])
        return ExpertInputs(x, jnp.asarray(chosen), gains, gate_up, down), ()

    shapes = jax.eval_shape(make)[0]
    forms: dict[str, Call] = {XLA: partial(_expert_call, xla.in_blocks)}
    if pallas_triton.supports(shapes.gate_up, shapes.down):
        form = partial(pallas_triton.sparse_experts, interpret=interpret)
        forms = {PALLAS: partial(_expert_call, form), **forms}
    width = stored_values(shapes.gate_up).dtype.itemsize
    return Kernel(
        name=f"experts {weights}, {rows:,} tokens, 35B",
        make=make,
        forms=forms,
        reference=_expert_reference,
        tolerance=EXPERT_TOLERANCE,
        nbytes=round(distinct * 3 * inner * hidden * width) + 2 * 2 * rows * hidden,
        operations=2 * rows * top_k * 3 * inner * hidden,
        untimed=(PALLAS,) if interpret else (),
    )


def _expert_call(form: Any, inputs: ExpertInputs, held: Any, index: jax.Array) -> tuple[jax.Array, Any]:
    x, experts = inputs.x[index % VARIANTS], inputs.experts[index % VARIANTS]
    return form(x, inputs.gate_up, inputs.down, inputs.gains, experts), held


def _expert_reference(inputs: ExpertInputs, held: Any, index: jax.Array) -> tuple[jax.Array, Any]:
    x, experts = inputs.x[index % VARIANTS], inputs.experts[index % VARIANTS]
    gate_up, down = (
        jax.vmap(linear_reference.dequantise)(weight) for weight in (inputs.gate_up, inputs.down)
    )
    wide = x.astype(jnp.float32)
    return moe_reference.sparse_experts(wide, gate_up, down, inputs.gains, experts), held
