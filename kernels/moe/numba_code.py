"""The machine code of sparse experts. Compiled functions see the operands of ``numba_cpu.py`` as ``a``."""

from typing import Any

import numba
import numpy as np

from ninfer_jax.kernels.cpu.intrinsics import exp
from ninfer_jax.kernels.cpu.tasks import Functions
from ninfer_jax.kernels.cpu.tiles import dot_block

TILE = 16
"""Channels of one task."""

BLOCK = 4
"""Pairs, and channels, of one tile of sums."""

zero, one = np.float32(0), np.float32(1)


@numba.njit
def _count_one(a: Any) -> int:
    return 1


@numba.njit
def _group(task: int, a: Any) -> None:
    order, ends, active = a.order, a.ends, a.active
    top_k = a.experts.shape[1]
    ends[:] = 0
    for pair in range(order.size):
        ends[a.experts[pair // top_k, pair % top_k]] += 1
    total = num_active = 0
    for expert in range(ends.size):
        if ends[expert] > 0:
            active[num_active] = expert
            num_active += 1
        size, ends[expert] = ends[expert], total
        total += size
    active[active.size - 1] = num_active
    for pair in range(order.size):
        expert = a.experts[pair // top_k, pair % top_k]
        order[ends[expert]] = pair
        ends[expert] += 1


@numba.njit(inline="always")
def _first_of(expert: int, ends: Any) -> int:
    """Where the expert's pairs begin."""
    return ends[expert - 1] if expert > 0 else 0


def expert_groups() -> Functions:
    """experts ``[n, k]`` -> order: pairs sorted by expert · ends: where each expert's pairs end · active:
    the experts that have pairs, then how many they are in the last place."""
    return Functions(_count_one, _group)


def expert_hidden(element: str) -> Functions:
    """The first products: ``silu(gate) * up`` of every pair."""
    block = dot_block(element)

    @numba.njit
    def count(a: Any) -> int:
        active = a.active
        return active[active.size - 1] * ((a.hidden.shape[1] + TILE - 1) // TILE)

    @numba.njit(error_model="numpy")
    def run(task: int, a: Any) -> None:
        x, gate_up, scale, order, ends, hidden = a.x, a.gate_up, a.scale, a.order, a.ends, a.hidden
        inner, top_k, size = hidden.shape[1], a.experts.shape[1], x.shape[1]
        tiles = (inner + TILE - 1) // TILE
        expert, low = a.active[task // tiles], task % tiles * TILE
        end = ends[expert]
        tokens = np.empty((BLOCK, size), np.float32)
        gates, ups = np.empty((2, BLOCK, BLOCK), np.float32)
        row, w_row, y_row = tokens.strides[0], gate_up.strides[1], gates.strides[0]
        weights = gate_up.ctypes.data + expert * gate_up.strides[0]
        scales = scale.ctypes.data + expert * scale.strides[0]
        for p in range(_first_of(expert, ends), end, BLOCK):
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

    return Functions(count, run)


def expert_output(element: str) -> Functions:
    """The second products, added to their tokens."""
    block = dot_block(element)

    @numba.njit
    def count(a: Any) -> int:
        return (a.out.shape[1] + TILE - 1) // TILE

    @numba.njit
    def run(task: int, a: Any) -> None:
        hidden, down, scale, order, ends = a.hidden, a.down, a.scale, a.order, a.ends
        active, weights, out = a.active, a.weights, a.out
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
            for p in range(_first_of(expert, ends), end, BLOCK):
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

    return Functions(count, run)
