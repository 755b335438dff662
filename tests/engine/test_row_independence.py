"""A row's hidden state has the same bits alone, among eight, in any chunks, after a prefix of another lane,
and over pages that a former owner left full of NaN."""

from functools import cache

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_jax.cache import SlotPool
from ninfer_jax.config import PAGE_SIZE, EngineConfig
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.programs import ProgramSpec
from ninfer_jax.engine.runner import DeviceRunner
from ninfer_jax.engine.sampling import SamplingPipeline
from ninfer_jax.engine.shapes import ShapeLadder
from ninfer_jax.engine.state import LaneTable, allocate
from ninfer_jax.engine.warmup import compile_programs
from ninfer_jax.kernels.cpu import is_available
from ninfer_jax.models import llama
from tests.engine import cases
from tests.models.cases import random_tensors, weights_from

NUM_LANES, PAGES = 8, 10
STEPS = 3
CONFIG = llama.parse_config(
    cases.HF_CONFIG
    | {"num_attention_heads": 7, "num_key_value_heads": 1, "head_dim": 18, "hidden_size": 37}
    | {"max_position_embeddings": PAGES * PAGE_SIZE}
)
ENGINE = EngineConfig(
    max_context=PAGES * PAGE_SIZE, kv_capacity=NUM_LANES * PAGES * PAGE_SIZE, max_concurrency=NUM_LANES
)
LADDER = ShapeLadder((1, NUM_LANES), (16, 256))
SPEC = ProgramSpec(llama, CONFIG, SamplingPipeline())
EDGES = [n + d for n in (0, 64, 192, 256, 512) for d in (-2, -1, 0, 1, 2) if n + d > 0]
LENGTHS = st.one_of(st.sampled_from(EDGES), st.integers(1, 600))


@cache
def compiled():
    weights = weights_from(llama.abstract(CONFIG), random_tensors(llama.abstract(CONFIG)))
    table = LaneTable.of([None] * NUM_LANES, PAGES)
    return weights, compile_programs(SPEC, weights, allocate(CONFIG, ENGINE, np.float32), table, LADDER)


def new_runner():
    """Over pools that hold NaN everywhere."""
    weights, programs = compiled()
    slots = SlotPool(NUM_LANES)
    for _ in range(NUM_LANES):
        slots.allocate()
    state = allocate(CONFIG, ENGINE, np.float32)
    layers = jax.tree.map(lambda pool: pool * np.nan, state.model.layers)
    state = state._replace(model=state.model._replace(layers=layers))
    return DeviceRunner(SPEC, weights, state, programs, LADDER, PAGES, slots)


def tokens_of(length, seed):
    return np.random.default_rng(seed).integers(0, CONFIG.vocab_size, length).tolist()


def prefill(runner, lane, prompt, chunk, *, start=0, shared=()):
    pages = (*shared, *range(1 + lane * PAGES + len(shared), 1 + (lane + 1) * PAGES))
    binding = LaneBinding(sampling=cases.GREEDY, prompt_len=len(prompt), pages=pages, slot=lane, start=start)
    runner.bind(lane, binding)
    for at in range(start, len(prompt), chunk):
        part = prompt[at : at + chunk]
        pending = runner.prefill(lane, part, at, sample=at + chunk >= len(prompt))
    return int(pending.wait()[0])


def decode(runner, prompts, firsts):
    """Greedy tokens of each lane, and its hidden state after the last."""
    lanes, rows = list(range(len(prompts))), [[first] for first in firsts]
    for step in range(STEPS):
        frontiers = [len(prompt) + step for prompt in prompts]
        tokens = runner.decode(lanes, [row[-1] for row in rows], frontiers).wait().tolist()
        for row, token in zip(rows, tokens, strict=True):
            row.append(token)
    hidden = np.asarray(runner.state.model.hidden)
    return [(row, hidden[lane].tobytes()) for lane, row in enumerate(rows)]


def alone(prompt, chunk=256):
    runner = new_runner()
    return decode(runner, [prompt], [prefill(runner, 0, prompt, chunk)])[0]


@pytest.mark.skipif(not is_available(), reason="plain XLA chooses its sums by shape")
@settings(max_examples=3, deadline=None)
@given(
    lengths=st.lists(LENGTHS, min_size=NUM_LANES, max_size=NUM_LANES),
    chunks=st.lists(st.integers(16, 256), min_size=NUM_LANES, max_size=NUM_LANES),
)
def test_a_row_does_not_depend_on_its_batch_or_chunks(lengths, chunks):
    prompts = [tokens_of(length, lane) for lane, length in enumerate(lengths)]
    runner = new_runner()
    pairs = zip(prompts, chunks, strict=True)
    firsts = [prefill(runner, lane, prompt, chunk) for lane, (prompt, chunk) in enumerate(pairs)]
    together = decode(runner, prompts, firsts)
    assert all(np.isfinite(np.frombuffer(bits, np.float32)).all() for _, bits in together)
    for prompt, row in zip(prompts, together, strict=True):
        assert alone(prompt) == row


@pytest.mark.skipif(not is_available(), reason="plain XLA chooses its sums by shape")
@pytest.mark.parametrize(("length", "reused"), [(65, 1), (257, 4), (258, 3), (321, 5), (513, 8), (600, 1)])
def test_a_row_does_not_depend_on_whose_prefix_it_reads(length, reused):
    prompt = tokens_of(length, length)
    runner = new_runner()
    prefill(runner, 1, prompt, 50)
    shared = tuple(range(1 + PAGES, 1 + PAGES + reused))
    first = prefill(runner, 0, prompt, 33, start=reused * PAGE_SIZE, shared=shared)
    assert decode(runner, [prompt], [first])[0] == alone(prompt)
