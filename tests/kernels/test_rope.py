"""The CPU kernels against the definition, and a token against the same token in company."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.kernels.rope import numba_cpu, reference, rotate, rotate_qkv


def random(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape, np.float32))


def tables(rows: int, columns: int, half: int) -> tuple[jax.Array, jax.Array]:
    angles = 100 * random(rows, columns, half)
    return jnp.cos(angles), jnp.sin(angles)


@pytest.mark.parametrize("half", [8, 5, 3], ids=["whole head", "part of a head", "odd"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 1), (2, 40)])
def test_equals_the_definition(rows: int, columns: int, half: int) -> None:
    x, (cos, sin) = random(rows, columns, 3, 16), tables(rows, columns, half)
    out = jax.jit(rotate)(x, cos, sin)
    np.testing.assert_allclose(out, reference.rotate(x, cos, sin), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(out[..., 2 * half :], x[..., 2 * half :])


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(9, 3), (2, 2), (5, 1)])
@pytest.mark.parametrize("columns", [1, 33])
def test_a_fused_projection_is_split_and_rotated(columns: int, num_heads: int, num_kv_heads: int) -> None:
    fused = random(2, columns, (num_heads + 2 * num_kv_heads) * 16)
    cos, sin = tables(2, columns, 8)
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    actual = rotate_qkv(fused, cos, sin, **heads)
    expected = reference.rotate_qkv(fused, cos, sin, **heads)
    assert [x.shape[2] for x in actual] == [num_heads, num_kv_heads, num_kv_heads]
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_token_does_not_depend_on_the_others() -> None:
    fused, (cos, sin) = random(1, 40, 5 * 16), tables(1, 40, 8)
    whole = numba_cpu.rotate_qkv(fused, cos, sin, num_heads=3, num_kv_heads=1)
    for token in (0, 17, 39):
        at = slice(token, token + 1)
        alone = numba_cpu.rotate_qkv(fused[:, at], cos[:, at], sin[:, at], num_heads=3, num_kv_heads=1)
        for one, all_ in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(one, all_[:, at])


def test_bfloat16_keeps_its_type() -> None:
    x, (cos, sin) = random(1, 3, 2, 16).astype(jnp.bfloat16), tables(1, 3, 8)
    out = rotate(x, cos, sin)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_array_equal(out, reference.rotate(x, cos, sin))


@pytest.mark.parametrize("shape", [(1, 2, 8), (2, 3, 8), (1, 3, 9)], ids=["tokens", "rows", "half"])
def test_tables_of_other_sizes_are_refused(shape: tuple[int, int, int]) -> None:
    cos, sin = tables(*shape)
    with pytest.raises(ValueError, match="rope: cos"):
        rotate(random(1, 3, 2, 16), cos, sin)
    with pytest.raises(ValueError, match="rope: cos"):
        rotate_qkv(random(1, 3, 4 * 16), cos, sin, num_heads=2, num_kv_heads=1)


def test_a_projection_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="62 values are not 4 heads"):
        rotate_qkv(random(1, 3, 62), *tables(1, 3, 8), num_heads=2, num_kv_heads=1)
