"""The ledger against what allocation and loading really make, and the decode bound by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine import plan
from ninfer_jax.engine.state import LaneTable, allocate
from ninfer_jax.models.identities import REGISTERED, identity_config
from ninfer_jax.models.registry import architecture
from ninfer_jax.models.weights import random_weights
from tests.models import cases, hybrid_cases

CONFIG = EngineConfig(max_context=256, kv_capacity=512, max_concurrency=3, prefill_chunk=64)
BF16 = np.dtype(jnp.bfloat16)


def parsed(hf_config):
    module = architecture(hf_config)
    config = module.parse_config(hf_config)
    return config, module.abstract(config)


@pytest.mark.parametrize("weights", ["f32", "bf16", "int8"])
@pytest.mark.parametrize(
    "hf_config", [cases.CONFIGS["qwen2"], hybrid_cases.CONFIGS["dense"], hybrid_cases.CONFIGS["sparse"]]
)
def test_ledger_counts_what_is_allocated(hf_config, weights):
    config, specs = parsed(hf_config)
    ledger = plan.make_ledger(config, specs, CONFIG, weights, BF16)
    tree = random_weights(specs, 0, weights, BF16)
    state = allocate(config, 512 // 64 + 1, 3, BF16)
    table = LaneTable.of([None] * 3, 256 // 64)
    size = lambda arrays: sum(array.nbytes for array in jax.tree.leaves(arrays))
    assert sum(ledger.weights.values()) == size(tree)
    resident = ledger.kv_pools + ledger.recurrent_state + ledger.lane_state
    assert resident == size(state) + size(table)


def test_largest_kv_capacity_fills_the_memory_to_a_page():
    config, specs = parsed(hybrid_cases.CONFIGS["dense"])
    ledger = plan.make_ledger(config, specs, CONFIG, "bf16", BF16)
    memory = ledger.total + 10 * ledger.page_bytes + 5
    largest = ledger.largest_kv_capacity(memory)
    assert largest == 512 + 10 * 64
    grown = dataclasses.replace(CONFIG, kv_capacity=largest)
    assert plan.make_ledger(config, specs, grown, "bf16", BF16).total == memory - 5
    assert ledger.largest_kv_capacity(0) == 0


@pytest.mark.parametrize(
    ("identity", "parameters", "state_mib", "kv_per_token"),
    [("qwen3.8-27b", 26.9e9, 146.8, 65536), ("qwen3.6-35b-a3b", 34.7e9, 61.4, 20480)],
)
def test_registered_sizes(identity, parameters, state_mib, kv_per_token):
    """The published figures: parameters of the text model, bytes of one sequence's state, KV a token."""
    config, specs = parsed(identity_config(identity))
    one = dataclasses.replace(CONFIG, max_concurrency=1)
    ledger = plan.make_ledger(config, specs, one, "bf16", BF16)
    assert ledger.weights["bfloat16"] / 2 == pytest.approx(parameters, rel=0.01)
    assert ledger.recurrent_state / 2**20 == pytest.approx(state_mib, abs=0.1)
    assert ledger.page_bytes == 64 * kv_per_token


def test_every_identity_parses():
    for identity in REGISTERED:
        config, _ = parsed(identity_config(identity))
        assert config.sample_vocab_size == 248077


def test_decode_moves_weights_once_and_what_each_row_needs():
    config, specs = parsed(hybrid_cases.CONFIGS["dense"])
    traffic = plan.decode_traffic(config, specs, CONFIG, "f32", np.float32, batch=2, context=100)
    arrays = random_weights(specs)
    everything = sum(array.nbytes for array in jax.tree.leaves(arrays))
    assert traffic.weights == everything - arrays.embedding.nbytes + 2 * 48 * 4
    assert traffic.kv == 2 * 101 * 2 * (2 * 32) * 4
    assert traffic.state == 2 * 2 * 3 * (6 * 8 * 8 + 3 * 80) * 4
    assert traffic.tokens_per_second(traffic.total) == 2


def test_decode_reads_only_chosen_experts():
    config, specs = parsed(hybrid_cases.CONFIGS["sparse"])
    sizes = [
        plan.decode_traffic(config, specs, CONFIG, "f32", np.float32, batch=batch, context=1).weights
        for batch in (1, 10_000)
    ]
    expert = 3 * 16 * 48 * 4
    layers, experts, chosen = 4, 8, 3
    embedding = (10_000 - 1) * 48 * 4
    assert sizes[1] - sizes[0] - embedding == layers * (experts - chosen) * expert
