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

from ninfer_jax.kernels.cpu import ELEMENTS, Buffer, is_available, register, struct
from ninfer_jax.kernels.linear import Matrix, stored_values, values_and_scale

TILE = 16
"""Channels of one task."""

BLOCK = 4
"""Pairs, and channels, of one tile of sums."""

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
def _first_of() -> Any:
    """A compiled (expert, ends) -> where the expert's pairs begin."""
    import numba

    @numba.njit(inline="always")
    def first_of(expert: int, ends: Any) -> int:
        return ends[expert - 1] if expert > 0 else 0

    return first_of


@functools.cache
def _hidden_kernel(element: str) -> tuple[Any, Any]:
    """(count, run) of the first products: ``silu(gate) * up`` of every pair."""
    import numba

    from ninfer_jax.kernels.cpu.intrinsics import exp
    from ninfer_jax.kernels.cpu.tiles import dot_block

    zero, one = np.float32(0), np.float32(1)
    block, first_of = dot_block(element), _first_of()

    @numba.njit
    def count(
        x: Any, gate_up: Any, scale: Any, order: Any, ends: Any, active: Any, experts: Any, hidden: Any
    ) -> int:
        return active[active.size - 1] * ((hidden.shape[1] + TILE - 1) // TILE)

    @numba.njit(error_model="numpy")
    def run(
        task: int, x: Any, gate_up: Any, scale: Any, order: Any, ends: Any, active: Any, experts: Any,
        hidden: Any,
    ) -> None:  # fmt: skip
        inner, top_k, size = hidden.shape[1], experts.shape[1], x.shape[1]
        tiles = (inner + TILE - 1) // TILE
        expert, low = active[task // tiles], task % tiles * TILE
        end = ends[expert]
        tokens = np.empty((BLOCK, size), np.float32)
        gates, ups = np.empty((2, BLOCK, BLOCK), np.float32)
        row, w_row, y_row = tokens.strides[0], gate_up.strides[1], gates.strides[0]
        weights = gate_up.ctypes.data + expert * gate_up.strides[0]
        scales = scale.ctypes.data + expert * scale.strides[0]
        for p in range(first_of(expert, ends), end, BLOCK):
            pairs = min(end - p, BLOCK)
            for r in range(pairs):
                token = order[p + r] // top_k
                for i in range(size):
                    tokens[r, i] = x[token, i]
            for gate in range(low, min(low + TILE, inner), BLOCK):
                channels, up = min(inner - gate, BLOCK), inner + gate
                block(
                    tokens.ctypes.data, row, pairs, weights + gate * w_row, w_row, channels, size,
                    scales + 4 * gate, gates.ctypes.data, y_row,
                )  # fmt: skip
                block(
                    tokens.ctypes.data, row, pairs, weights + up * w_row, w_row, channels, size,
                    scales + 4 * up, ups.ctypes.data, y_row,
                )  # fmt: skip
                for r in range(pairs):
                    for c in range(channels):
                        small = exp(-abs(gates[r, c]))
                        sigmoid = (one if gates[r, c] >= zero else small) / (one + small)
                        hidden[p + r, gate + c] = gates[r, c] * sigmoid * ups[r, c]

    return count, run


@functools.cache
def _output_kernel(element: str) -> tuple[Any, Any]:
    """(count, run) of the second products, added to their tokens."""
    import numba

    from ninfer_jax.kernels.cpu.tiles import dot_block

    zero = np.float32(0)
    block, first_of = dot_block(element), _first_of()

    @numba.njit
    def count(
        hidden: Any, down: Any, scale: Any, order: Any, ends: Any, active: Any, weights: Any, out: Any
    ) -> int:
        return (out.shape[1] + TILE - 1) // TILE

    @numba.njit
    def run(
        task: int, hidden: Any, down: Any, scale: Any, order: Any, ends: Any, active: Any, weights: Any,
        out: Any,
    ) -> None:  # fmt: skip
        top_k, size = weights.shape[1], hidden.shape[1]
        low, high = task * TILE, min((task + 1) * TILE, out.shape[1])
        out[:, low:high] = zero
        sums = np.empty((BLOCK, BLOCK), np.float32)
        row, w_row = hidden.strides[0], down.strides[1]
        for index in range(active[active.size - 1]):
            expert = active[index]
            end = ends[expert]
            experts_down = down.ctypes.data + expert * down.strides[0]
            scales = scale.ctypes.data + expert * scale.strides[0]
            for p in range(first_of(expert, ends), end, BLOCK):
                pairs = min(end - p, BLOCK)
                for first in range(low, high, BLOCK):
                    outputs = min(high - first, BLOCK)
                    block(
                        hidden.ctypes.data + p * row, row, pairs, experts_down + first * w_row, w_row,
                        outputs, size, scales + 4 * first, sums.ctypes.data, sums.strides[0],
                    )  # fmt: skip
                    for r in range(pairs):
                        pair = order[p + r]
                        token, weight = pair // top_k, weights[pair // top_k, pair % top_k]
                        for o in range(outputs):
                            out[token, first + o] += weight * sums[r, o]

    return count, run


def supports(gate_up: Matrix, down: Matrix) -> bool:
    """Whether this host can run the kernels and they know the weights' one format."""
    formats = {str(stored_values(weight).dtype) for weight in (gate_up, down)}
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
    group: Any = jax.ffi.ffi_call(name, [struct((size,), jnp.int32) for size in sizes])
    groups = group(experts)
    values, scale = values_and_scale(gate_up)
    element = str(values.dtype)
    matrix, float2 = Buffer(ELEMENTS[element], 3), Buffer(np.float32, 2)
    operands = (float2, matrix, float2, _INDEX, _INDEX, _INDEX)
    hidden_name, output_name = f"ninfer_expert_hidden_{element}", f"ninfer_expert_output_{element}"
    count, run = _hidden_kernel(element)
    hidden_operands = (*operands, Buffer(np.int32, 2))
    register(hidden_name, count=count, run=run, operands=hidden_operands, results=(float2,))
    count, run = _output_kernel(element)
    register(output_name, count=count, run=run, operands=(*operands, float2), results=(float2,))
    to_hidden: Any = jax.ffi.ffi_call(hidden_name, struct((pairs, down.shape[2]), jnp.float32))
    hidden = to_hidden(x.astype(jnp.float32), values, scale, *groups, experts)
    to_output: Any = jax.ffi.ffi_call(output_name, struct(x.shape, jnp.float32))
    out: jax.Array = to_output(hidden, *values_and_scale(down), *groups, weights)
    return out
