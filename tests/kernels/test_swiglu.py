"""The CPU kernel against the definition, and a row against the same row in company."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.kernels.swiglu import numba_code, numba_cpu, reference, swiglu


def random(*shape: int) -> jax.Array:
    return jnp.asarray(8 * np.random.default_rng(0).standard_normal(shape, np.float32))


@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 3, 6), (40, 34), (5, 2 * numba_code.TASK + 2)])
def test_equals_the_definition(shape: tuple[int, ...]) -> None:
    gate_up = random(*shape)
    np.testing.assert_allclose(jax.jit(swiglu)(gate_up), reference.swiglu(gate_up), rtol=2e-6, atol=1e-6)


def test_large_gates_neither_overflow_nor_vanish() -> None:
    gates = jnp.asarray([-1e30, -200.0, -0.0, 0.0, 200.0, 1e30], jnp.float32)
    out = swiglu(jnp.concatenate((gates, jnp.ones(6))).reshape(1, 12))
    np.testing.assert_allclose(out[0], [0, 0, 0, 0, 200, 1e30], atol=1e-6)


def test_a_row_does_not_depend_on_the_others() -> None:
    gate_up = random(37, 3000)
    whole = numba_cpu.swiglu(gate_up)
    for row in (0, 20, 36):
        np.testing.assert_array_equal(numba_cpu.swiglu(gate_up[row : row + 1])[0], whole[row])


def test_bfloat16_keeps_its_type() -> None:
    gate_up = random(3, 32).astype(jnp.bfloat16)
    out = swiglu(gate_up)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_array_equal(out, reference.swiglu(gate_up))


def test_an_odd_size_is_refused() -> None:
    with pytest.raises(ValueError, match="33 values are no gate and up of one size"):
        swiglu(random(3, 33))
