"""Every form of ``linear`` and ``embed`` against the plain reference, at row counts around each switch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.kernels.linear import (
    Matrix,
    QuantArray,
    embed,
    linear,
    numba_cpu,
    quantise,
    reference,
    xla_cpu,
)

ROWS = (1, 2, 8, xla_cpu.MAX_INT8_ROWS, xla_cpu.MAX_INT8_ROWS + 1)
RELATIVE_ERROR = {"f32": 1e-6, "bf16": 4e-3, "int8": 4e-3}
"""Root mean square, from the rounding of activations: none, or to 8 bits of mantissa."""


def weight_of(weight_format: str, shape: tuple[int, int]) -> Matrix:
    matrix = np.random.default_rng(1).standard_normal(shape, np.float32)
    if weight_format == "int8":
        return quantise(matrix)
    return jnp.asarray(matrix, {"f32": jnp.float32, "bf16": jnp.bfloat16}[weight_format])


@pytest.fixture(params=["numba", "xla"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "xla":
        monkeypatch.setattr(numba_cpu, "supports", lambda weight: False)
    return request.param


@pytest.mark.parametrize("weight_format", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear(form: str, weight_format: str, rows: int, has_bias: bool) -> None:
    rng = np.random.default_rng(rows)
    weight = weight_of(weight_format, (70, 96))
    x = jnp.asarray(
        rng.standard_normal((rows, 96), np.float32) * rng.uniform(0.1, 10, (rows, 1)), jnp.float32
    )
    bias = jnp.asarray(rng.standard_normal(70), jnp.float32) if has_bias else None
    expected = np.asarray(reference.linear(x, weight, bias))
    actual = np.asarray(linear(x, weight, bias))
    assert actual.shape == expected.shape
    error = np.sqrt(np.mean((actual - expected) ** 2, axis=-1) / np.mean(expected**2, axis=-1))
    assert error.max() < (1e-6 if form == "numba" else RELATIVE_ERROR[weight_format])


def test_leading_axes_and_dtype() -> None:
    x = jnp.ones((2, 3, 96), jnp.bfloat16)
    y = linear(x, weight_of("int8", (70, 96)))
    assert (y.shape, y.dtype) == ((2, 3, 70), jnp.bfloat16)


@pytest.mark.parametrize("weight_format", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("shape", [(70, 96), (67, 101), (1, 7), (600, 32)])
def test_row_does_not_depend_on_its_neighbours(weight_format: str, shape: tuple[int, int]) -> None:
    """Nor on how many they are, which chooses the tile and the outputs of a task."""
    weight = weight_of(weight_format, shape)
    x = jnp.asarray(np.random.default_rng(2).standard_normal((20, shape[1])), jnp.float32)
    together = np.asarray(linear(x, weight))
    for rows in (1, 2, 3, 4, 8):
        for first in range(0, 20 - rows, rows):
            some = np.asarray(linear(x[first : first + rows], weight))
            np.testing.assert_array_equal(some, together[first : first + rows])


@pytest.mark.parametrize(("dtype", "is_exact"), [(jnp.float32, True), (jnp.bfloat16, False)])
def test_float32_is_not_rounded_on_an_accelerator(dtype: type, is_exact: bool) -> None:
    """NVIDIA's default for float32 operands is TF32, with ten bits of mantissa."""
    traced = jax.jit(linear).trace(jnp.ones((2, 32), dtype), jnp.ones((16, 32), dtype))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert ("HIGHEST" in text) is is_exact


def test_zero_row_stays_zero() -> None:
    y = linear(jnp.zeros((2, 96)), weight_of("int8", (70, 96)))
    np.testing.assert_array_equal(np.asarray(y), 0)


def test_shapes_are_checked() -> None:
    with pytest.raises(ValueError, match="95 inputs"):
        linear(jnp.ones((1, 95)), weight_of("f32", (70, 96)))


@pytest.mark.parametrize("weight_format", ["f32", "bf16", "int8"])
def test_embed(weight_format: str) -> None:
    weight = weight_of(weight_format, (70, 96))
    ids = jnp.asarray([[0, 69, 3], [3, 1, 0]])
    np.testing.assert_array_equal(
        np.asarray(embed(ids, weight)), np.asarray(reference.embed(ids, weight, jnp.float32))
    )


def test_quantise_bounds_the_error_by_half_a_step() -> None:
    matrix = np.random.default_rng(3).standard_normal((5, 40)).astype(np.float32)
    matrix[2] = 0
    leaf = quantise(matrix)
    assert isinstance(leaf, QuantArray)
    scale = np.asarray(leaf.scale)
    assert scale[2] == 0
    difference = np.abs(np.asarray(reference.dequantise(leaf)) - matrix)
    assert (difference <= scale[:, None] * 0.5001).all()
