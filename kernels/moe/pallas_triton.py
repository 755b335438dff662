"""Sparse experts on NVIDIA GPUs: one Pallas (Triton) kernel that multiplies blocks of rows with their expert.

A block is a few rows that share an expert; a program makes some output channels of one block, reading its
expert's weights where they lie. In decode every (token, expert) pair is a block of its own; in prefill
pairs are sorted by expert and each expert's are cut into blocks.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from ninfer_jax.kernels.linear import Matrix, QuantArray
from ninfer_jax.kernels.moe.blocks import ExpertBlocks, cut_into_blocks

NAME = "expert_matmul"
MIN_ROWS = 16
"""Rows of the smallest matrix product."""
OUTPUTS = 64
INPUTS = 64
_struct: Any = jax.ShapeDtypeStruct


def supports(gate_up: Matrix, down: Matrix) -> bool:
    """Triton loads powers of two: channels must come in whole tiles."""
    sizes = (*gate_up.shape[1:], *down.shape[1:])
    return all(size % OUTPUTS == 0 and size % INPUTS == 0 for size in sizes)


def sparse_experts(
    x: jax.Array,
    gate_up: Matrix,
    down: Matrix,
    weights: jax.Array,
    experts: jax.Array,
    interpret: bool = False,
) -> jax.Array:
    """See ``api.sparse_experts``; weights are float32, and so is the result ``[n, H]``."""
    multiply = functools.partial(expert_matmul, interpret=interpret)
    blocks = cut_into_blocks(experts, gate_up.shape[0], MIN_ROWS)
    rows = x[blocks.tokens]  # [blocks, rows, H]; places without a pair hold token 0
    gate, up = jnp.split(multiply(rows, gate_up, blocks), 2, axis=-1)
    hidden = (jax.nn.silu(gate) * up).astype(x.dtype)
    outputs = multiply(hidden, down, blocks).reshape(-1, x.shape[-1])
    return jnp.sum(outputs[blocks.places] * weights[:, :, None], axis=1)


def expert_matmul(x: jax.Array, weight: Matrix, blocks: ExpertBlocks, interpret: bool = False) -> jax.Array:
    """``y[b] = x[b] @ weight[blocks.experts[b]].T``: ``[blocks, rows, in]`` by ``[E, out, in]`` -> float32.
    Blocks past ``blocks.used`` are left as they are found."""
    values, scale = (weight.values, weight.scale) if isinstance(weight, QuantArray) else (weight, None)
    num_blocks, rows, inputs = x.shape
    outputs = values.shape[1]
    y: jax.Array = pl.pallas_call(
        functools.partial(_kernel, inputs=inputs),
        grid=(num_blocks, outputs // OUTPUTS),
        in_specs=[
            pl.BlockSpec((None, rows, inputs), lambda block, tile: (block, 0, 0)),
            *(_whole(array) for array in (values, blocks.experts, blocks.used)),
        ],
        out_specs=pl.BlockSpec((None, rows, OUTPUTS), lambda block, tile: (block, 0, tile)),
        out_shape=_struct((num_blocks, rows, outputs), jnp.float32),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=3),
        interpret=interpret,
        name=NAME,
    )(x, values, blocks.experts, blocks.used)
    return y if scale is None else y * scale[blocks.experts][:, None]


def _whole(array: jax.Array) -> pl.BlockSpec:
    """An operand that every program reads where it wants to."""
    return pl.BlockSpec(array.shape, lambda *_: (0,) * array.ndim)


def _kernel(
    x_ref: Any, weight_ref: Any, experts_ref: Any, used_ref: Any, out_ref: Any, *, inputs: int
) -> None:
    block, rows = pl.program_id(0), x_ref.shape[0]
    expert = experts_ref[block]
    channels = pl.ds(pl.program_id(1) * OUTPUTS, OUTPUTS)

    @pl.when(block < used_ref[0])
    def _() -> None:
        def add(step: Any, total: Any) -> Any:
            chunk = pl.ds(step * INPUTS, INPUTS)
            x = x_ref[:, chunk]
            weight = weight_ref[expert, channels, chunk].astype(x.dtype)
            precision = jax.lax.Precision.HIGHEST if x.dtype == jnp.float32 else None
            return total + jax.lax.dot_general(
                x, weight, (((1,), (1,)), ((), ())), precision=precision, preferred_element_type=jnp.float32
            )

        start = jnp.zeros((rows, OUTPUTS), jnp.float32)
        out_ref[...] = jax.lax.fori_loop(0, inputs // INPUTS, add, start)
