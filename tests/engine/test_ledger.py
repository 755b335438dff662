"""The ledger against what allocation and loading really make, and the decode bound by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.artifact.loader import Identity, LoadedModel, SourceDescription
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.build import build_device
from ninfer_jax.engine.decode_traffic import decode_traffic
from ninfer_jax.engine.ledger import Deployment, make_ledger
from ninfer_jax.engine.state import LaneTable, allocate
from ninfer_jax.models.base import KVPool
from ninfer_jax.models.identities import REGISTERED, identity_config
from ninfer_jax.models.registry import architecture
from ninfer_jax.models.weights import random_weights
from tests.models import cases, hybrid_cases

CONFIG = EngineConfig(
    max_context=256, kv_capacity=512, max_concurrency=3, prefill_chunk=64, device_state_slots=2
)
BF16, F32 = np.dtype(jnp.bfloat16), np.dtype(np.float32)
DENSE, HYBRID, SPARSE = cases.CONFIGS["qwen2"], hybrid_cases.CONFIGS["dense"], hybrid_cases.CONFIGS["sparse"]


def deployed(hf_config, config=CONFIG, weights="bf16", activation=BF16):
    module = architecture(hf_config)
    parsed = module.parse_config(hf_config)
    return Deployment(parsed, module.abstract(parsed), config, weights, activation)


def size(arrays):
    return sum(array.nbytes for array in jax.tree.leaves(arrays))


@pytest.mark.parametrize("layout", ["paged", "contiguous"])
@pytest.mark.parametrize("weights", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("hf_config", [DENSE, HYBRID, SPARSE])
def test_ledger_counts_what_is_allocated(hf_config, weights, layout):
    asked = deployed(hf_config, replace(CONFIG, cache_layout=layout), weights)
    ledger = make_ledger(asked)
    assert sum(ledger.weights.values()) == size(random_weights(asked.specs, 0, weights, BF16))
    state = allocate(asked.model, asked.config, BF16)
    table = LaneTable.of([None] * 3, 256 // 64)
    pools = [layer for layer in state.model.layers if isinstance(layer, KVPool)]
    others = [layer for layer in state.model.layers if not isinstance(layer, KVPool)]
    assert ledger.kv_pools == {"bfloat16": size(pools)}
    assert ledger.state == size((others, state.model.hidden))
    assert ledger.workspace == size((state.counts, table))
    assert ledger.total == sum(bytes_ for _, bytes_ in ledger.entries())


@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_ledger_cache_and_engine_agree_on_the_pools(layout):
    """One number: what the plan says, what the cache reports, and what the running engine's arrays take."""
    asked = deployed(HYBRID, replace(CONFIG, cache_layout=layout, prefill_chunk=16), "f32", F32)
    tree = random_weights(asked.specs)
    module = architecture(HYBRID)
    model = LoadedModel(
        Identity("tiny", "qwen3_5"), module, asked.model, HYBRID, tree, "f32", {},
        SourceDescription("random", "memory", {}), 0, 0,
    )  # fmt: skip
    runner, cache = build_device(model, asked.config)
    ledger = make_ledger(asked)
    pools = [layer for layer in runner.state.model.layers if isinstance(layer, KVPool)]
    assert size(pools) == sum(ledger.kv_pools.values()) == cache.storage.num_bytes
    assert ledger.page_bytes == cache.storage.page_bytes
    assert ledger.kv_capacity == 64 * cache.capacity
    assert runner.temporaries > 0


def test_largest_kv_capacity_fills_the_memory_to_a_page():
    asked = deployed(HYBRID)
    ledger = make_ledger(asked, runtime=1000)
    memory = ledger.total + 10 * ledger.page_bytes + 5
    largest = ledger.largest_kv_capacity(memory)
    assert largest == 512 + 10 * 64
    assert make_ledger(asked.with_settings(kv_capacity=largest), runtime=1000).total == memory - 5
    assert ledger.largest_kv_capacity(0) == 0


@pytest.mark.parametrize(
    ("identity", "parameters", "state_mib", "kv_per_token"),
    [("qwen3.8-27b", 26.9e9, 146.8, 65536), ("qwen3.6-35b-a3b", 34.7e9, 61.4, 20480)],
)
def test_registered_sizes(identity, parameters, state_mib, kv_per_token):
    """The published figures: parameters of the text model, bytes of one sequence's state, KV a token."""
    one = replace(CONFIG, max_concurrency=1, device_state_slots=0)
    ledger = make_ledger(deployed(identity_config(identity), one))
    assert ledger.weights["bfloat16"] / 2 == pytest.approx(parameters, rel=0.01)
    assert ledger.state / 2**20 == pytest.approx(state_mib, abs=0.1)
    assert ledger.page_bytes == 64 * kv_per_token


def test_every_identity_parses():
    for identity in REGISTERED:
        assert deployed(identity_config(identity)).model.sample_vocab_size == 248077


def test_decode_moves_weights_once_and_what_each_row_needs():
    asked = deployed(HYBRID, weights="f32", activation=F32)
    traffic = decode_traffic(asked, batch=2, context=100)
    arrays = random_weights(asked.specs)
    assert traffic.weights == size(arrays) - arrays.embedding.nbytes + 2 * 48 * 4
    assert traffic.kv == 2 * 101 * 2 * (2 * 32) * 4
    recurrent, hidden = 3 * (6 * 8 * 8 + 3 * 80), 48
    assert traffic.state == 2 * 2 * (recurrent + hidden) * 4
    assert traffic.tokens_per_second(traffic.total) == 2


def test_decode_reads_only_chosen_experts():
    asked = deployed(SPARSE, weights="f32", activation=F32)
    sizes = [decode_traffic(asked, batch=batch, context=1).weights for batch in (1, 10_000)]
    expert = 3 * 16 * 48 * 4
    layers, experts, chosen = 4, 8, 3
    embedding = (10_000 - 1) * 48 * 4
    assert sizes[1] - sizes[0] - embedding == layers * (experts - chosen) * expert
