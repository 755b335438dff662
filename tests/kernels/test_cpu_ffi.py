"""Custom calls written in Numba: every task runs once, whatever calls overlap."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.kernels.cpu import Kernel, call, entry, ffi, floats, is_available, kernels_together

ADD_ROW_NUMBERS = Kernel(
    "test_add_row_numbers",
    "tests.kernels.row_number_code:add_row_numbers",
    {"x": floats(2)},
    {"out": floats(2)},
)


@jax.jit
def add_row_numbers(x: jax.Array) -> jax.Array:
    (out,) = call(ADD_ROW_NUMBERS, x, shapes=[x.shape])
    return out


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


def test_kernels_of_a_program_are_made_together(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    names = ("test_first", "test_second")
    kernels = [Kernel(name, ADD_ROW_NUMBERS.code, {"x": floats(2)}, {"out": floats(2)}) for name in names]
    entry_address = ffi.machine_code.entry_address

    def make(kernel: Kernel, schedule: int) -> int:
        made.append(kernel.name)
        return entry_address(kernel, schedule)

    monkeypatch.setattr(ffi.machine_code, "entry_address", make)

    @jax.jit
    def program(x: jax.Array) -> jax.Array:
        for kernel in (*kernels, *kernels):
            (x,) = call(kernel, x, shapes=[x.shape])
        return x

    with kernels_together():
        lowered = program.lower(jnp.ones((3, 2)))
        assert made == []
    assert sorted(made) == sorted(names)
    out = lowered.compile()(jnp.ones((3, 2)))
    np.testing.assert_array_equal(out[:, 0], [1, 5, 9])


def test_kernels_are_made_though_tracing_failed() -> None:
    """What was traced until then is not traced again."""
    kernel = Kernel("test_before_a_fault", ADD_ROW_NUMBERS.code, {"x": floats(2)}, {"out": floats(2)})

    @jax.jit
    def part(x: jax.Array) -> jax.Array:
        return call(kernel, x, shapes=[x.shape])[0]

    def program(x: jax.Array) -> jax.Array:
        part(x)
        raise LookupError

    with pytest.raises(LookupError), kernels_together():
        jax.jit(program).lower(jnp.ones((2, 2)))
    np.testing.assert_array_equal(part(jnp.ones((2, 2)))[:, 0], [1, 2])


@pytest.mark.parametrize("x", [jnp.ones(3), jnp.ones((3, 3), jnp.int8)], ids=["rank", "element"])
def test_operands_are_checked(x: jax.Array) -> None:
    with pytest.raises(AssertionError, match="test_add_row_numbers: x"):
        call(ADD_ROW_NUMBERS, x, shapes=[x.shape])


def test_a_helper_takes_its_arrays_from_the_call_that_it_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a helper's tasks one call may end and another take its place. The entry point, run in Python
    with a machine that hands out task 3 of one call and then task 0 of the next."""
    claims, frames = iter([3, 0, -1]), iter(["first call", "second call"])
    ran: list[tuple[int, Any]] = []
    places = 1000
    monkeypatch.setattr(entry, "numba", SimpleNamespace(njit=lambda function: function))
    monkeypatch.setattr(entry, "symbol_address", lambda name: lambda: places)
    monkeypatch.setattr(entry, "view_of", lambda kernel: lambda frame: frame)
    monkeypatch.setattr(entry, "claim", lambda job: next(claims))
    monkeypatch.setattr(entry, "word", lambda address, index: next(frames))
    monkeypatch.setattr(entry, "fetch_add", lambda address, amount: None)
    functions = entry.Functions(None, lambda task, arguments: ran.append((task, arguments)))
    point = entry.entry_point(ADD_ROW_NUMBERS, functions, 0)
    assert point(places + 128) == 0
    assert ran == [(3, "first call"), (0, "second call")]
