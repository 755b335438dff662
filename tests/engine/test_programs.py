"""What the compiled programs may not do: copy the state, retrace, or sample what must not be sampled."""

import re
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.engine import programs
from ninfer_jax.engine.programs import BindInputs, DecodeInputs, PrefillInputs
from ninfer_jax.engine.sampling import SamplingPipeline
from ninfer_jax.engine.state import LaneTable, allocate
from ninfer_jax.types import SamplingParams
from tests.engine import cases

NUM_PAGES = 1013
"""Occurs nowhere else, so an array of this size in a program is a pool."""
ENGINE = replace(cases.ENGINE, kv_capacity=(NUM_PAGES - 1) * PAGE_SIZE)


@cache
def compiled(name: str):
    state = jax.eval_shape(lambda: allocate(cases.CONFIG, ENGINE, np.float32))
    table = LaneTable.of([None] * cases.NUM_LANES, cases.PAGES_PER_LANE)
    if name == "bind_lane":
        return programs.bind_lane.lower(state, BindInputs.made(0, 0)).compile()
    if name == "copy_image":
        return programs.copy_image.lower(state, np.int32(0), np.int32(2)).compile()
    if name == "prefill_chunk":
        inputs = PrefillInputs.padded(64, 0, 0, [1], [[0]])
        lowered = programs.prefill_chunk.lower(cases.SPEC, cases.weights(), state, table, inputs)
    else:
        inputs = DecodeInputs(*np.zeros((3, 2), np.int32))
        lowered = programs.decode_round.lower(cases.SPEC, cases.weights(), state, table, inputs)
    return lowered.compile()


@pytest.mark.parametrize("name", ["prefill_chunk", "decode_round", "bind_lane", "copy_image"])
def test_the_donated_state_is_updated_in_place(name):
    program = compiled(name)
    state = allocate(cases.CONFIG, ENGINE, np.float32)
    num_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    memory = program.memory_analysis()
    assert memory.alias_size_in_bytes == num_bytes
    pool_bytes = state.model.layers[0].k.nbytes
    assert memory.temp_size_in_bytes < pool_bytes
    text = program.as_text()
    assert f"[{NUM_PAGES},64," in text
    copies = re.findall(rf"= \w+\[{NUM_PAGES},[^=]* (?:copy|convert|transpose)\(", text)
    assert not copies


def test_penalty_counts_are_not_copied():
    shape = f"s32[{cases.NUM_LANES},{cases.CONFIG.vocab_size}]"
    text = compiled("decode_round").as_text()
    assert shape in text
    assert not re.findall(rf"= {re.escape(shape)}[^=]* copy\(", text)


def test_a_program_is_traced_once_for_equal_statics():
    """A spec that is equal but another object finds the same trace."""
    inputs = DecodeInputs(*np.zeros((3, 1), np.int32))
    table = LaneTable.of([None] * cases.NUM_LANES, cases.PAGES_PER_LANE)

    def traced(spec):
        return programs.decode_round.trace(spec, cases.weights(), cases.new_state(), table, inputs).jaxpr

    first = traced(cases.SPEC)
    assert traced(replace(cases.SPEC, config=replace(cases.CONFIG))) is first
    assert traced(replace(cases.SPEC, sampling=SamplingPipeline(cap=7))) is not first


def test_sampled_ids_lie_in_the_vocabulary():
    runner = cases.new_runner()
    params = [SamplingParams(temperature=2.0, seed=seed) for seed in range(3)]
    outputs = cases.generate(runner, [[1], [2], [3]], 100, params)
    tokens = {token for output in outputs for token in output}
    assert max(tokens) < cases.CONFIG.sample_vocab_size
    assert min(tokens) >= 0
    assert len(tokens) > 50
