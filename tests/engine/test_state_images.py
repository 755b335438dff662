"""State images on real arrays of a tiny hybrid: one unit, copied and zeroed whole, immutable when frozen."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from ninfer_jax.artifact.loader import Identity, LoadedModel, SourceDescription
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine import programs
from ninfer_jax.engine.build import build_device
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.programs import BindInputs
from ninfer_jax.engine.state import EngineState, allocate
from ninfer_jax.errors import EngineError
from ninfer_jax.models.base import KVPool
from ninfer_jax.models.registry import architecture
from ninfer_jax.models.weights import random_weights
from ninfer_jax.types import SamplingParams
from tests.models import hybrid_cases

HF_CONFIG = hybrid_cases.CONFIGS["dense"]
MODULE = architecture(HF_CONFIG)
MODEL = MODULE.parse_config(HF_CONFIG)
CONFIG = EngineConfig(
    max_context=128, kv_capacity=512, max_concurrency=2, prefill_chunk=16, device_state_slots=2
)
GREEDY = SamplingParams(temperature=0.0)
PROMPT = [int(token) for token in np.random.default_rng(5).integers(0, 97, 75)]


def random_state() -> EngineState:
    rng = np.random.default_rng(1)
    state = allocate(MODEL, CONFIG, np.float32)
    return jax.tree.map(
        lambda leaf: jax.numpy.asarray(rng.integers(-100, 100, leaf.shape), leaf.dtype), state
    )


def image(state: EngineState, slot: int) -> list[np.ndarray]:
    """One slot of everything that is an image: every recurrent layer, and the hidden."""
    layers = [layer for layer in state.model.layers if not isinstance(layer, KVPool)]
    return [np.asarray(leaf[slot]) for leaf in jax.tree.leaves((layers, state.model.hidden))]


def pages(state: EngineState) -> list[np.ndarray]:
    pools = [layer for layer in state.model.layers if isinstance(layer, KVPool)]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(pools)]


def assert_equal(one: list[np.ndarray], other: list[np.ndarray]) -> None:
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def assert_only_slot_changed(before: EngineState, after: EngineState, slot: int) -> None:
    for other in set(range(CONFIG.num_slots)) - {slot}:
        assert_equal(image(before, other), image(after, other))


def test_a_pool_has_an_image_a_lane_and_one_a_checkpoint() -> None:
    state = random_state()
    assert CONFIG.num_slots == state.model.hidden.shape[0] == 4
    assert len(image(state, 3)) == 2 * 3 + 1  # three recurrent layers
    assert all(leaf.any() for leaf in image(state, 3))


def test_binding_zeroes_one_whole_image_and_one_lane_of_counts() -> None:
    before, donated = random_state(), random_state()
    after = programs.bind_lane(donated, BindInputs.made(lane=1, slot=3))
    assert not any(leaf.any() for leaf in image(after, 3))
    assert_only_slot_changed(before, after, 3)
    assert_equal(pages(before), pages(after))
    assert not after.counts[1].any()
    np.testing.assert_array_equal(before.counts[0], after.counts[0])


def test_binding_to_an_image_copies_it_whole_and_leaves_it() -> None:
    before, donated = random_state(), random_state()
    after = programs.bind_lane(donated, BindInputs.made(lane=0, slot=1, image=2, source_page=4, page=7))
    assert_equal(image(before, 2), image(after, 1))
    assert_only_slot_changed(before, after, 1)
    for old, new in zip(pages(before), pages(after), strict=True):
        np.testing.assert_array_equal(old[4], new[7])
        np.testing.assert_array_equal(np.delete(old, 7, 0), np.delete(new, 7, 0))


def test_a_capture_copies_one_whole_image_and_nothing_else() -> None:
    before, donated = random_state(), random_state()
    after = programs.copy_image(donated, np.int32(0), np.int32(2))
    assert_equal(image(before, 0), image(after, 2))
    assert_only_slot_changed(before, after, 2)
    assert_equal(pages(before), pages(after))
    np.testing.assert_array_equal(before.counts, after.counts)


@cache
def weights():
    return random_weights(MODULE.abstract(MODEL))


def loaded_hybrid() -> LoadedModel:
    return LoadedModel(
        Identity("tiny", "qwen3_5"), MODULE, MODEL, HF_CONFIG, weights(), "f32", {},
        SourceDescription("random", "memory", {}), 0, 0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def device():
    return build_device(loaded_hybrid(), CONFIG)


def bind(runner, slot: int, lane: int, first_page: int, **settings) -> None:
    held = tuple(range(first_page, first_page + 2))
    runner.bind(lane, LaneBinding(held, slot, GREEDY, len(PROMPT), **settings))


def finish(runner, lane: int, start: int, num_tokens: int = 12) -> list[int]:
    """The rest of the prompt from ``start``, and greedy tokens after it."""
    tokens = runner.prefill(lane, PROMPT[start:], start, sample=True).wait().tolist()
    for step in range(num_tokens - 1):
        tokens += runner.decode([lane], tokens[-1:], [len(PROMPT) + step]).wait().tolist()
    return tokens


def test_a_request_that_starts_from_a_captured_image_answers_as_from_nothing(device) -> None:
    """At a frontier inside a page: the image and the page's start are copied, and the checkpoint's bits
    are the same after both requests have gone on."""
    runner, cache = device
    slots, frontier = cache.slots, 33
    first = slots.allocate()
    bind(runner, first, 0, first_page=1)
    runner.prefill(0, PROMPT[:frontier], 0).wait()
    checkpoint = slots.capture()
    runner.capture(0, checkpoint)
    slots.freeze(checkpoint)
    frozen = image(runner.state, checkpoint)
    assert any(leaf.any() for leaf in frozen)
    alone = finish(runner, 0, frontier)

    second = slots.allocate()
    bind(runner, second, 1, first_page=3, start=frontier, image=checkpoint, tail_page=1)
    assert finish(runner, 1, frontier) == alone
    assert_equal(frozen, image(runner.state, checkpoint))
    for lane in (0, 1):
        runner.release(lane)
    for slot in (first, second, checkpoint):
        slots.release(slot)


def test_a_frozen_image_refuses_every_unit(device) -> None:
    runner, cache = device
    slot = cache.slots.allocate()
    bind(runner, slot, 0, first_page=1)
    runner.prefill(0, PROMPT, 0).wait()
    cache.slots.freeze(slot)
    before = image(runner.state, slot)
    refused = pytest.raises(EngineError, match=f"state slot {slot} is frozen")
    with refused:
        runner.decode([0], [1], [len(PROMPT)])
    with refused:
        runner.prefill(0, [1], len(PROMPT))
    with refused:
        runner.capture(0, slot)
    runner.release(0)
    with refused:
        bind(runner, slot, 1, first_page=3)
    assert_equal(before, image(runner.state, slot))
    cache.slots.release(slot)


def test_without_checkpoints_there_is_nothing_to_capture_to(device) -> None:
    assert replace(CONFIG, device_state_slots=0).num_slots == CONFIG.max_concurrency
    assert EngineConfig().device_state_slots == 0
