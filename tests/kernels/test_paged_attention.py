"""Every form against the plain reference: outputs of real columns, and the pool outside the null page."""

import math
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.kernels.paged_attention import (
    KVPool,
    allocate_pool,
    api,
    numba_cpu,
    pallas_triton,
    reference,
    xla_cpu,
)
from ninfer_jax.kernels.paged_attention.arg_specs import ALL, DECODE, PREFILL, ArgSpec


def to_heads(keys: np.ndarray, values: np.ndarray) -> KVPool:
    """Keys and values ``[P, 64, K, D]`` as the Numba kernel's pool has them."""
    k = np.ascontiguousarray(keys.transpose(0, 2, 3, 1)).reshape(keys.shape)
    v = np.ascontiguousarray(values.transpose(0, 2, 1, 3)).reshape(values.shape)
    return KVPool(jnp.asarray(k), jnp.asarray(v))


def from_heads(pool: KVPool) -> KVPool:
    """``to_heads`` undone."""
    pages, size, heads, head_dim = pool.k.shape
    keys = np.asarray(pool.k).reshape(pages, heads, head_dim, size).transpose(0, 3, 1, 2)
    values = np.asarray(pool.v).reshape(pages, heads, size, head_dim).transpose(0, 2, 1, 3)
    return KVPool(keys, values)


def call(function: Any, spec: ArgSpec) -> tuple[np.ndarray, KVPool]:
    """Outputs and the ordered pool. The Numba kernel's pool has an order of its own."""
    is_by_head = function is numba_cpu.paged_attention or function is api.paged_attention
    arguments = spec.arguments()
    pool = KVPool(arguments.pop("pool_k"), arguments.pop("pool_v"))
    if is_by_head:
        pool = to_heads(*pool)
    args = {name: jnp.asarray(array) for name, array in arguments.items()}
    scale = spec.head_dim**-0.5
    out, pool = jax.jit(partial(function, scale=scale))(
        args["q"], args["k"], args["v"], pool, args["block_tables"], args["starts"], args["lengths"]
    )
    if is_by_head:
        return np.asarray(out), from_heads(pool)
    return np.asarray(out), KVPool(np.asarray(pool.k), np.asarray(pool.v))


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
@pytest.mark.parametrize(
    "function",
    [
        xla_cpu.paged_attention,
        numba_cpu.paged_attention,
        partial(pallas_triton.paged_attention, interpret=True),
        api.paged_attention,
    ],
    ids=["xla", "numba", "pallas", "api"],
)
def test_equals_reference(function: Any, spec: ArgSpec) -> None:
    expected, expected_pool = call(reference.paged_attention, spec)
    actual, pool = call(function, spec)
    assert np.isfinite(actual).all()
    for row, length in enumerate(spec.lengths):
        np.testing.assert_allclose(actual[row, :length], expected[row, :length], atol=2e-6, rtol=0)
    for part, expected_part in zip(pool, expected_pool, strict=True):
        np.testing.assert_array_equal(part[1:], expected_part[1:])


def test_huge_scores_do_not_overflow() -> None:
    spec = DECODE[4]
    args = spec.arguments()
    pool = KVPool(jnp.asarray(args["pool_k"]) * 1e3, jnp.asarray(args["pool_v"]))
    rest = (jnp.asarray(args[name]) for name in ("q", "k", "v"))
    tail = (jnp.asarray(args[name]) for name in ("block_tables", "starts", "lengths"))
    out, _ = api.paged_attention(*rest, pool, *tail)
    assert np.isfinite(np.asarray(out)).all()


def test_head_counts_are_checked() -> None:
    pool = allocate_pool(3, 2, 16, jnp.float32)
    ones = jnp.ones((1, 1, 3, 16))
    with pytest.raises(ValueError, match="3 query heads over 2 KV heads"):
        api.paged_attention(
            ones,
            ones[:, :, :2],
            ones[:, :, :2],
            pool,
            jnp.ones((1, 2), int),
            jnp.zeros(1, int),
            jnp.ones(1, int),
        )


@pytest.mark.parametrize("spec", [DECODE[0], DECODE[4], PREFILL[0], PREFILL[4]], ids=lambda spec: spec.name)
def test_donated_pool_is_updated_in_place(spec: ArgSpec) -> None:
    """No copy, conversion or transpose as large as a pool; the pool's buffers come back."""
    capacity = 4000
    shapes = {name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in spec.arguments().items()}
    part = jax.ShapeDtypeStruct((capacity, *shapes["pool_k"].shape[1:]), jnp.float32)

    def step(pool: KVPool, *rest: Any) -> Any:
        q, k, v, *where = rest
        return api.paged_attention(q, k, v, pool, *where)

    names = ("q", "k", "v", "block_tables", "starts", "lengths")
    program = jax.jit(step, donate_argnums=0)
    compiled = program.lower(KVPool(part, part), *(shapes[name] for name in names)).compile()
    pool_bytes = math.prod(part.shape) * 4
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= 2 * pool_bytes
    assert memory.temp_size_in_bytes < pool_bytes / 4
    moved = re.findall(rf"= f32\[{capacity},[^ ]* (copy|convert|transpose)\(", compiled.as_text())
    assert not moved


def test_numba_column_does_not_depend_on_its_chunk() -> None:
    """One chunk of 150 tokens, then the same tokens in chunks of 7 and one by one: equal bit for bit."""
    rng = np.random.default_rng(0)
    length, scale = 150, 0.125
    q, k, v = (rng.standard_normal((1, length, heads, 64), np.float32) for heads in (9, 3, 3))
    table = jnp.asarray([[2, 5, 1]], jnp.int32)

    def in_chunks(size: int) -> np.ndarray:
        pool = allocate_pool(6, 3, 64, jnp.float32)
        outputs = []
        for start in range(0, length, size):
            chunk = [jnp.asarray(array[:, start : start + size]) for array in (q, k, v)]
            columns = chunk[0].shape[1]
            out, pool = numba_cpu.paged_attention(
                *chunk, pool, table, jnp.asarray([start], jnp.int32), jnp.asarray([columns], jnp.int32), scale
            )
            outputs.append(np.asarray(out))
        return np.concatenate(outputs, axis=1)

    whole = in_chunks(length)
    np.testing.assert_array_equal(in_chunks(7), whole)
    np.testing.assert_array_equal(in_chunks(1), whole)
