"""The rotation's machine code. Compiled functions see the operands of ``numba_cpu.py`` as ``a``."""

from typing import Any

import numba

from ninfer_jax.kernels.cpu.tasks import Functions

TOKENS = 16
"""Tokens of one task."""


@numba.njit
def _count(a: Any) -> int:
    return (a.cos.shape[0] + TOKENS - 1) // TOKENS


@numba.njit
def _rotate_heads(x: Any, cos: Any, sin: Any, out: Any) -> None:
    """One token's heads ``[heads, D]``."""
    half, head_dim = cos.shape[0], out.shape[1]
    for head in range(out.shape[0]):
        for i in range(half):
            first, second = x[head, i], x[head, half + i]
            out[head, i] = first * cos[i] - second * sin[i]
            out[head, half + i] = second * cos[i] + first * sin[i]
        for i in range(2 * half, head_dim):
            out[head, i] = x[head, i]


@numba.njit
def _run(task: int, a: Any) -> None:
    for token in range(task * TOKENS, min((task + 1) * TOKENS, a.cos.shape[0])):
        _rotate_heads(a.x[token], a.cos[token], a.sin[token], a.out[token])


@numba.njit
def _run_qkv(task: int, a: Any) -> None:
    num_heads, num_kv_heads = a.q.shape[1], a.k.shape[1]
    rotated = num_heads + num_kv_heads
    for token in range(task * TOKENS, min((task + 1) * TOKENS, a.cos.shape[0])):
        heads, cos, sin = a.fused[token], a.cos[token], a.sin[token]
        _rotate_heads(heads[:num_heads], cos, sin, a.q[token])
        _rotate_heads(heads[num_heads:rotated], cos, sin, a.k[token])
        for head in range(num_kv_heads):
            for i in range(heads.shape[1]):
                a.v[token, head, i] = heads[rotated + head, i]


def rotate() -> Functions:
    """See ``api.rotate``."""
    return Functions(_count, _run)


def rotate_qkv() -> Functions:
    """See ``api.rotate_qkv``."""
    return Functions(_count, _run_qkv)
