"""The micro-kernels against NumPy, and against each other bit for bit."""

from typing import Any

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from ninfer_jax.kernels.cpu.tiles import add_matmul, dot_tile, softmax_row  # noqa: E402


def random(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def dots(rows: int, outputs: int, element: str, x: Any, w: Any, scale: Any) -> Any:
    """``rows`` by ``outputs`` in one tile."""
    tile, out = dot_tile(rows, outputs, element), np.zeros((rows, outputs), np.float32)

    @numba.njit
    def call(x: Any, w: Any, scale: Any, out: Any) -> None:
        tile(
            x.ctypes.data, x.strides[0], w.ctypes.data, w.strides[0], x.shape[1],
            scale.ctypes.data, out.ctypes.data, out.strides[0],
        )  # fmt: skip

    call(x, w, scale, out)
    return out


@pytest.mark.parametrize("element", ["int8", "float32", "bfloat16"])
def test_dots_do_not_depend_on_their_tile(element: str) -> None:
    x, scale = random(4, 48), random(4)
    w = {
        "int8": np.random.default_rng(1).integers(-127, 128, (4, 48), np.int8),
        "float32": random(4, 48),
        "bfloat16": (random(4, 48).view(np.uint32) >> 16).astype(np.uint16),
    }[element]
    wide = (w.astype(np.uint32) << 16).view(np.float32) if element == "bfloat16" else w.astype(np.float32)
    whole = dots(4, 4, element, x, w, scale)
    np.testing.assert_allclose(whole, x @ wide.T * scale, rtol=1e-5, atol=1e-5)
    for row in range(4):
        one_row = dots(1, 4, element, x[row : row + 1], w, scale)
        np.testing.assert_array_equal(one_row[0], whole[row])
    single = dots(1, 1, element, x[2:3], w[1:2], scale[1:2])
    assert single[0, 0] == whole[2, 1]


@numba.njit
def matmul(a: Any, b: Any, out: Any) -> None:
    add_matmul(
        a.ctypes.data, a.strides[0], a.shape[0], b.ctypes.data, b.strides[0], a.shape[1],
        out.ctypes.data, out.strides[0], b.shape[1], b.ctypes.data,
    )  # fmt: skip


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("columns", [5, 16, 64, 100])
def test_matmul_adds_to_what_is_there(rows: int, columns: int) -> None:
    a, b, out = random(rows, 33), random(33, columns), random(rows, columns)
    expected = out + a @ b
    matmul(a, b, out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


def test_matmul_rows_do_not_depend_on_each_other() -> None:
    a, b = random(7, 33), random(33, 100)
    whole = np.zeros((7, 100), np.float32)
    matmul(a, b, whole)
    for row in range(7):
        out = np.zeros((1, 100), np.float32)
        matmul(a[row : row + 1], b, out)
        np.testing.assert_array_equal(out[0], whole[row])


@pytest.mark.parametrize("visible", [1, 15, 16, 63, 64])
@pytest.mark.parametrize("before", [-1e30, 0.0, 50.0])
def test_softmax_row_sees_what_is_visible(visible: int, before: float) -> None:
    scores = 10 * random(64)
    scores[visible:] = np.nan  # what a page held before
    expected_maximum = max(np.float32(before), scores[:visible].max())
    exponents = np.exp((scores[:visible] - expected_maximum).astype(np.float64))
    row = softmax_row(4)

    @numba.njit
    def call(scores: Any, visible: int, before: Any) -> Any:
        return row(scores.ctypes.data, visible, before)

    maximum, total = call(scores, visible, np.float32(before))
    assert maximum == expected_maximum
    np.testing.assert_allclose(scores[:visible], exponents, rtol=1e-6, atol=1e-37)
    assert (scores[visible:] == 0).all()
    np.testing.assert_allclose(total, exponents.sum(), rtol=1e-6, atol=1e-37)
