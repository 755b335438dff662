"""The CPU kernel against the definition, and a row against the same row in company."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.kernels.rms_norm import add_rms_norm, numba_cpu, reference, rms_norm


def random(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 3, 5), (40, 24), (1, 17, 4, 16)])
def test_equals_the_definition(shape: tuple[int, ...], zero_centred: bool) -> None:
    x, weight = random(*shape), random(shape[-1])
    actual = jax.jit(lambda x, w: rms_norm(x, w, 1e-5, zero_centred=zero_centred))(x, weight)
    expected = reference.rms_norm(x, weight, epsilon=1e-5, zero_centred=zero_centred)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_row_does_not_depend_on_the_others() -> None:
    x, weight = random(37, 100), random(100)
    whole = numba_cpu.rms_norm(x, weight, epsilon=1e-6, zero_centred=False)
    for row in (0, 20, 36):
        alone = numba_cpu.rms_norm(x[row : row + 1], weight, epsilon=1e-6, zero_centred=False)
        np.testing.assert_array_equal(alone[0], whole[row])


def test_bfloat16_keeps_its_type() -> None:
    x = random(3, 32).astype(jnp.bfloat16)
    out = rms_norm(x, random(32), 1e-6)
    assert out.dtype == jnp.bfloat16
    expected = reference.rms_norm(x.astype(jnp.float32), random(32), epsilon=1e-6, zero_centred=False)
    np.testing.assert_allclose(out.astype(jnp.float32), expected, rtol=1e-2, atol=1e-2)


def test_a_weight_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="32 values against a weight of shape"):
        rms_norm(random(3, 32), random(16), 1e-6)


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_sum_and_its_norm(dtype: jnp.dtype, zero_centred: bool) -> None:
    x, delta, weight = (part.astype(dtype) for part in (random(2, 19, 40), random(19, 40)[None], random(40)))
    delta = jnp.broadcast_to(delta, x.shape)
    add = jax.jit(lambda *args: add_rms_norm(*args, 1e-5, zero_centred=zero_centred))
    total, normed = add(x, delta, weight)
    assert total.dtype == normed.dtype == dtype
    np.testing.assert_array_equal(total, x + delta)
    expected = rms_norm(total, weight, 1e-5, zero_centred=zero_centred).astype(jnp.float32)
    # In a jitted bfloat16 program XLA may norm the sum before it rounds it.
    tolerance = 0 if dtype == jnp.float32 else 1e-2
    np.testing.assert_allclose(normed.astype(jnp.float32), expected, rtol=tolerance)


@pytest.mark.parametrize("delta", [random(2, 32), random(3, 32).astype(jnp.bfloat16)])
def test_a_sum_of_unlike_arrays_is_refused(delta: jax.Array) -> None:
    with pytest.raises(ValueError, match="is to be added to float32"):
        add_rms_norm(random(3, 32), delta, random(32), 1e-6)
