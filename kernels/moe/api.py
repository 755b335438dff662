"""Routing, and the experts' share of a sparse feed-forward."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.linear import Matrix
from ninfer_jax.kernels.moe import numba_cpu, pallas_triton, xla

FEW_PAIRS = 128
"""Up to this many (token, expert) pairs an expert rarely serves two of them: XLA:CPU need not sort them."""


class Routing(NamedTuple):
    """Each token's experts ``[n, k]`` int32, best first, and their weights ``[n, k]``, which sum to one."""

    weights: jax.Array
    experts: jax.Array


def route(scores: jax.Array, top_k: int) -> Routing:
    """The ``top_k`` experts of each token by softmax of ``scores [n, E]`` in float32; the lowest index
    wins a tie. Weights are renormalised over the chosen and have the dtype of ``scores``."""
    chances = jax.nn.softmax(scores.astype(jnp.float32), axis=-1)
    best, experts = jax.lax.top_k(chances, top_k)
    weights = best / jnp.sum(best, axis=-1, keepdims=True)
    return Routing(weights.astype(scores.dtype), experts)


def sparse_experts(x: jax.Array, gate_up: Matrix, down: Matrix, routing: Routing) -> jax.Array:
    """``y[n] = sum_j weights[n, j] expert[experts[n, j]](x[n])``, each expert a SwiGLU.

    x ``[n, H]`` · gate_up ``[E, 2I, H]`` gate rows first · down ``[E, H, I]`` -> ``[n, H]`` in
    ``x.dtype``; sums are float32. Only chosen experts are multiplied or read.
    """
    if gate_up.shape[0] != down.shape[0] or gate_up.shape[1] != 2 * down.shape[2]:
        raise ValueError(f"sparse_experts: gate_up {gate_up.shape} against down {down.shape}")
    weights = routing.weights.astype(jnp.float32)
    operands = (x, gate_up, down, weights, routing.experts)
    plain = xla.one_by_one if routing.experts.size <= FEW_PAIRS else xla.in_blocks
    on_cpu = numba_cpu.sparse_experts if numba_cpu.supports(gate_up, down) else plain
    on_cuda = pallas_triton.sparse_experts if pallas_triton.supports(gate_up, down) else xla.in_blocks
    y: jax.Array = jax.lax.platform_dependent(*operands, cpu=on_cpu, cuda=on_cuda, default=xla.in_blocks)
    return y.astype(x.dtype)
