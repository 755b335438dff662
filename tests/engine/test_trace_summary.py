"""A capture summed up by named scope."""

import jax
import jax.numpy as jnp
import pytest

from ninfer_jax.engine.trace import capture
from ninfer_jax.engine.trace_summary import Cost, by_scope, device_seconds, scopes
from ninfer_jax.errors import ConfigError

NUM_RUNS = 5


@jax.jit
def block(x, weight):
    for index in range(2):
        with jax.named_scope(f"layer_{index}"):
            with jax.named_scope("attention"), jax.named_scope("linear"):
                x = jnp.tanh(x @ weight)
            with jax.named_scope("mlp"):
                x = jax.lax.cond(x[0, 0] > 5, lambda v: v, lambda v: jnp.sort(v, axis=-1), x)
    return x + 1


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    x, weight = jnp.ones((64, 64)), jnp.ones((64, 64)) / 64
    program = block.lower(x, weight).compile()
    program(x, weight).block_until_ready()

    def work():
        for _ in range(NUM_RUNS):
            program(x, weight).block_until_ready()

    return capture(tmp_path_factory.mktemp("trace"), work), program.as_text()


def test_every_run_and_scope_is_found(traced):
    folder, hlo = traced
    costs = device_seconds(folder, "jit_block", hlo)
    summed = by_scope(costs)
    assert {"attention", "mlp"} <= set(summed)
    assert "layer_0" not in summed
    assert {cost.num_runs for cost in summed.values()} == {NUM_RUNS}
    assert ("attention", "linear") in costs
    assert summed["mlp"].seconds_per_run > 0
    assert list(costs.values()) == sorted(costs.values(), key=lambda cost: -cost.seconds)


def test_another_program_is_not_counted(traced):
    folder, hlo = traced
    assert device_seconds(folder, "jit_other", hlo) == {}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("jit(f)/layer_3/jit(_layer)/attention/linear/cond/branch_0_fun/ffi_call", ("attention", "linear")),
        ("jit(f)/layer_3/jit(_layer)/attention/mul", ("attention", "mul")),
        ("jit(f)/sample/vmap()/vmap(jit(g))/while/body/add", ("sample", "add")),
        ("jit(f)/scatter", ("other", "scatter")),
    ],
)
def test_places_of_instructions(path, place):
    assert scopes(f'  ROOT %fusion.1 = f32[2]{{0}} fusion(%p), metadata={{op_name="{path}" id=3}}') == {
        "fusion.1": place
    }


def test_sums_keep_the_number_of_runs():
    costs = {("a", "x"): Cost(1.0, 10, 5), ("a", "y"): Cost(2.0, 5, 5), ("b", "x"): Cost(4.0, 5, 5)}
    assert by_scope(costs) == {"b": Cost(4.0, 5, 5), "a": Cost(3.0, 15, 5)}


def test_a_folder_that_cannot_be_written_is_a_configuration_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        capture(tmp_path / "file" / "folder", lambda: None)
