"""Custom calls written in Numba: every task runs once, whatever calls overlap."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
import pytest

from ninfer_jax.kernels.cpu import Buffer, ffi, is_available, register


@numba.njit
def count_rows(x: Any, out: Any) -> int:
    return x.shape[0]


@numba.njit
def add_row_number(task: int, x: Any, out: Any) -> None:
    for column in range(x.shape[1]):
        out[task, column] = x[task, column] + task


@jax.jit
def add_row_numbers(x: jax.Array) -> jax.Array:
    register(
        "test_add_row_numbers",
        count=count_rows,
        run=add_row_number,
        operands=(Buffer(np.float32, 2),),
        results=(Buffer(np.float32, 2),),
    )
    return jax.ffi.ffi_call("test_add_row_numbers", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def test_it_is_available() -> None:
    assert is_available(), "this jaxlib's header is not laid out as kernels/cpu/ffi.py expects"


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 1000])
def test_every_task_runs_once(rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 5), np.float32)
    expected = x + np.arange(rows, dtype=np.float32)[:, None]
    for _ in range(20):
        np.testing.assert_array_equal(np.asarray(add_row_numbers(jnp.asarray(x))), expected)


def test_calls_may_overlap() -> None:
    inputs = [jnp.full((50 + number, 3), number, jnp.float32) for number in range(12)]

    def many(x: jax.Array) -> bool:
        expected = np.asarray(x) + np.arange(x.shape[0], dtype=np.float32)[:, None]
        return all((np.asarray(add_row_numbers(x)) == expected).all() for _ in range(200))

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(many, inputs))


def test_a_helper_takes_its_arrays_from_the_call_that_it_claimed() -> None:
    """Between a helper's tasks one call may end and another take its place. The helper's text, run in
    Python with a machine that hands out task 3 of one call and then task 0 of the next."""
    source = ffi._handler_source([("args", 0, Buffer(np.float32, 1))], 0)
    claims, frames = iter([3, 0, -1]), iter(["first call", "second call"])
    ran: list[tuple[int, str]] = []
    scope = {
        "np": np,
        "DONE": 2,
        "FRAME": "frame",
        "claim": lambda job: next(claims),
        "fetch_add": lambda address, amount: None,
        "word": lambda address, index: next(frames) if index == "frame" else address,
        "as_pointer": lambda address: address,
        "carray": lambda pointer, shape, dtype: pointer,
        "run": lambda task, array: ran.append((task, array)),
    }
    exec(source, scope)
    scope["helper"](0)
    assert ran == [(3, "first call"), (0, "second call")]
