"""Sparse experts on the CPU: pairs are grouped by expert, and each chosen expert is read once a call.

Three kernels: one lays out the groups, one makes ``silu(gate) * up`` of every pair, one adds the experts'
outputs to their tokens. A token's sum runs over its experts in ascending order, and every product is summed
in one order, so a token's result does not depend on the others, bit for bit.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.kernels.cpu import Buffer, is_available, register
from ninfer_jax.kernels.linear import Matrix, QuantArray

TILE = 16
"""Channels of one task."""

ELEMENTS = {"int8": np.int8, "float32": np.float32, "bfloat16": np.uint16}
"""Weight formats, and what Numba sees of them."""

_struct: Any = jax.ShapeDtypeStruct
_INDEX = Buffer(np.int32, 1)


@functools.cache
def _group_kernel() -> tuple[Any, Any]:
    """experts ``[n, k]`` -> order: pairs sorted by expert · ends: where each expert's pairs end · active:
    the experts that have pairs, then how many they are in the last place."""
    import numba

    @numba.njit
    def count(experts: Any, order: Any, ends: Any, active: Any) -> int:
        return 1

    @numba.njit
    def run(task: int, experts: Any, order: Any, ends: Any, active: Any) -> None:
        flat = experts.reshape(-1)
        ends[:] = 0
        for pair in range(flat.size):
            ends[flat[pair]] += 1
        total = num_active = 0
        for expert in range(ends.size):
            if ends[expert] > 0:
                active[num_active] = expert
                num_active += 1
            size, ends[expert] = ends[expert], total
            total += size
        active[active.size - 1] = num_active
        for pair in range(flat.size):
            order[ends[flat[pair]]] = pair
            ends[flat[pair]] += 1

    return count, run


@functools.cache
def _kernels(element: str) -> tuple[Any, Any, Any, Any]:
    """(count, run) of the first products and (count, run) of the second."""
    import numba

    from ninfer_jax.kernels.cpu.intrinsics import bfloat16_to_float, exp

    zero, one = np.float32(0), np.float32(1)
    widen = bfloat16_to_float if element == "bfloat16" else numba.njit(lambda value: np.float32(value))

    @numba.njit(fastmath={"reassoc", "contract", "nsz"})
    def four_by_two(x0: Any, x1: Any, x2: Any, x3: Any, w0: Any, w1: Any, out: Any) -> None:
        """``out[o, r] = x_r . w_o``."""
        a00 = a01 = a02 = a03 = a10 = a11 = a12 = a13 = zero
        for i in range(x0.shape[0]):
            u0, u1 = widen(w0[i]), widen(w1[i])
            v0, v1, v2, v3 = x0[i], x1[i], x2[i], x3[i]
            a00 += v0 * u0
            a01 += v1 * u0
            a02 += v2 * u0
            a03 += v3 * u0
            a10 += v0 * u1
            a11 += v1 * u1
            a12 += v2 * u1
            a13 += v3 * u1
        out[0, 0], out[0, 1], out[0, 2], out[0, 3] = a00, a01, a02, a03
        out[1, 0], out[1, 1], out[1, 2], out[1, 3] = a10, a11, a12, a13

    @numba.njit(inline="always")
    def first_of(expert: int, ends: Any) -> int:
        return ends[expert - 1] if expert > 0 else 0

    @numba.njit
    def count_hidden(
        x: Any, gate_up: Any, scale: Any, order: Any, ends: Any, active: Any, experts: Any, hidden: Any
    ) -> int:
        return active[active.size - 1] * ((hidden.shape[1] + TILE - 1) // TILE)

    @numba.njit(error_model="numpy")
    def run_hidden(
        task: int, x: Any, gate_up: Any, scale: Any, order: Any, ends: Any, active: Any, experts: Any,
        hidden: Any,
    ) -> None:  # fmt: skip
        inner, top_k = hidden.shape[1], experts.shape[1]
        tiles = (inner + TILE - 1) // TILE
        expert, low = active[task // tiles], task % tiles * TILE
        last = ends[expert] - 1
        sums = np.empty((2, 4), np.float32)
        for p in range(first_of(expert, ends), last + 1, 4):
            p1, p2, p3 = min(p + 1, last), min(p + 2, last), min(p + 3, last)
            x0, x1 = x[order[p] // top_k], x[order[p1] // top_k]
            x2, x3 = x[order[p2] // top_k], x[order[p3] // top_k]
            for channel in range(low, min(low + TILE, inner)):
                up = inner + channel
                four_by_two(x0, x1, x2, x3, gate_up[expert, channel], gate_up[expert, up], sums)
                for r in range(min(4, last + 1 - p)):
                    gate = sums[0, r] * scale[expert, channel]
                    small = exp(-abs(gate))
                    gate *= (one if gate >= zero else small) / (one + small)
                    hidden[p + r, channel] = gate * (sums[1, r] * scale[expert, up])

    @numba.njit
    def count_output(
        hidden: Any, down: Any, scale: Any, order: Any, ends: Any, active: Any, weights: Any, out: Any
    ) -> int:
        return (out.shape[1] + TILE - 1) // TILE

    @numba.njit
    def run_output(
        task: int, hidden: Any, down: Any, scale: Any, order: Any, ends: Any, active: Any, weights: Any,
        out: Any,
    ) -> None:  # fmt: skip
        top_k = weights.shape[1]
        low, high = task * TILE, min((task + 1) * TILE, out.shape[1])
        out[:, low:high] = zero
        sums = np.empty((2, 4), np.float32)
        for index in range(active[active.size - 1]):
            expert = active[index]
            last = ends[expert] - 1
            for p in range(first_of(expert, ends), last + 1, 4):
                p1, p2, p3 = min(p + 1, last), min(p + 2, last), min(p + 3, last)
                for o0 in range(low, high, 2):
                    o1 = min(o0 + 1, high - 1)
                    four_by_two(
                        hidden[p],
                        hidden[p1],
                        hidden[p2],
                        hidden[p3],
                        down[expert, o0],
                        down[expert, o1],
                        sums,
                    )
                    for r in range(min(4, last + 1 - p)):
                        pair = order[p + r]
                        token, weight = pair // top_k, weights[pair // top_k, pair % top_k]
                        out[token, o0] += weight * (sums[0, r] * scale[expert, o0])
                        if o1 > o0:
                            out[token, o1] += weight * (sums[1, r] * scale[expert, o1])

    return count_hidden, run_hidden, count_output, run_output


def supports(gate_up: Matrix, down: Matrix) -> bool:
    """Whether this host can run the kernels and they know the weights' one format."""
    formats = {
        str((weight.values if isinstance(weight, QuantArray) else weight).dtype) for weight in (gate_up, down)
    }
    return len(formats) == 1 and formats <= ELEMENTS.keys() and is_available()


def sparse_experts(
    x: jax.Array, gate_up: Matrix, down: Matrix, weights: jax.Array, experts: jax.Array
) -> jax.Array:
    """See ``api.sparse_experts``; float32 ``[n, H]``. See ``supports``."""
    count, run = _group_kernel()
    name = "ninfer_expert_groups"
    register(name, count=count, run=run, operands=(Buffer(np.int32, 2),), results=(_INDEX,) * 3)
    num_experts, pairs = gate_up.shape[0], experts.size
    sizes = (pairs, num_experts, min(num_experts, pairs) + 1)
    group: Any = jax.ffi.ffi_call(name, [_struct((size,), jnp.int32) for size in sizes])
    groups = group(experts)
    values, scale = _split(gate_up)
    element = str(values.dtype)
    count_hidden, run_hidden, count_output, run_output = _kernels(element)
    matrix, float2 = Buffer(ELEMENTS[element], 3), Buffer(np.float32, 2)
    operands = (float2, matrix, float2, _INDEX, _INDEX, _INDEX)
    hidden_name, output_name = f"ninfer_expert_hidden_{element}", f"ninfer_expert_output_{element}"
    register(
        hidden_name,
        count=count_hidden,
        run=run_hidden,
        operands=(*operands, Buffer(np.int32, 2)),
        results=(float2,),
    )
    register(output_name, count=count_output, run=run_output, operands=(*operands, float2), results=(float2,))
    to_hidden: Any = jax.ffi.ffi_call(hidden_name, _struct((pairs, down.shape[2]), jnp.float32))
    hidden = to_hidden(x.astype(jnp.float32), values, scale, *groups, experts)
    to_output: Any = jax.ffi.ffi_call(output_name, _struct(x.shape, jnp.float32))
    out: jax.Array = to_output(hidden, *_split(down), *groups, weights)
    return out


def _split(weight: Matrix) -> tuple[jax.Array, jax.Array]:
    """Values and a scale for every channel."""
    if isinstance(weight, QuantArray):
        return weight.values, weight.scale
    return weight, jnp.ones(weight.shape[:-1], jnp.float32)
