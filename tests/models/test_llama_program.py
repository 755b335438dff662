"""What stands in the compiled step of a dense decoder on CPU: pools updated in place, nothing copied."""

import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from ninfer_jax.models import llama
from ninfer_jax.models.base import ModelState, StepInputs
from ninfer_jax.models.state import allocate_state
from ninfer_jax.models.weights import random_weights
from tests.models.cases import CONFIGS

NUM_PAGES = 3001


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def step(config: Any, weights: Any, state: ModelState, inputs: StepInputs) -> tuple[jax.Array, ModelState]:
    hidden, state = llama.forward(config, weights, state, inputs)
    return llama.logits(config, weights, hidden[:, -1]), state


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (4, 1), (2, 4), (1, 130)])
def test_pools_are_updated_in_place(rows: int, columns: int) -> None:
    config = llama.parse_config(CONFIGS["qwen3"])
    weights = random_weights(llama.abstract(config), 0, "int8")
    state = jax.eval_shape(lambda: allocate_state(config, NUM_PAGES, rows, jnp.float32, jnp.float32))
    shapes = ((rows, columns), (1, rows, columns), (rows,), (rows,), (rows, 9), (rows,))
    inputs = StepInputs(*(jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes))
    compiled = step.lower(config, weights, state, inputs).compile()
    pool_bytes = state.layers[0].k.size * 4
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= 2 * pool_bytes * config.num_layers
    assert memory.temp_size_in_bytes < pool_bytes / 2
    text = compiled.as_text()
    assert f"f32[{NUM_PAGES},64," in text
    assert not re.findall(rf"= f32\[{NUM_PAGES},[^ ]* (?:copy|convert|transpose)\(", text)
