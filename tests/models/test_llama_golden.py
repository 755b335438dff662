"""Logits against files that transformers wrote (``make_golden.py``), and refusals of configs."""

from typing import Any

import jax
import numpy as np
import pytest

from ninfer_jax.errors import CorruptModelError, ModelLoadError, UnsupportedModelError
from ninfer_jax.models import llama
from ninfer_jax.models.registry import architecture
from ninfer_jax.models.weights import num_parameters, random_weights
from tests.models.cases import CONFIGS, GOLDEN, SIZES, Driver, random_tensors, weights_from


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_match_golden_file(name: str) -> None:
    config = llama.parse_config(CONFIGS[name])
    specs = llama.abstract(config)
    weights = weights_from(specs, random_tensors(specs))
    with np.load(GOLDEN / f"{name}.npz") as golden:
        tokens, positions, expected = golden["tokens"], golden["positions"], golden["logits"]
    driver = Driver(config, weights, 1)
    driver.step([tokens[:70]], 80)
    driver.step([tokens[70:135]], 80)
    for token in tokens[135:]:
        driver.step([[token]])
    np.testing.assert_allclose(np.stack(driver.logits[0])[positions], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"model_type": "mamba"}, UnsupportedModelError, "model_type"),
        ({"model_type": None}, CorruptModelError, "model_type"),
        ({"hidden_act": "gelu"}, UnsupportedModelError, "hidden_act"),
        ({"use_sliding_window": True}, UnsupportedModelError, "use_sliding_window"),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            UnsupportedModelError,
            "layer_types[1]",
        ),
        ({"quantization_config": {"bits": 4}}, UnsupportedModelError, "quantization_config"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            UnsupportedModelError,
            "rope_scaling.rope_type",
        ),
        ({"rope_scaling": {"type": "dynamic"}}, UnsupportedModelError, "rope_scaling.type"),
        (
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1.0}},
            CorruptModelError,
            "rope_parameters.factor",
        ),
        ({"hidden_size": None}, CorruptModelError, "hidden_size"),
        ({"hidden_size": "48"}, CorruptModelError, "hidden_size"),
        ({"num_hidden_layers": 0}, CorruptModelError, "num_hidden_layers"),
        ({"num_hidden_layers": True}, CorruptModelError, "num_hidden_layers"),
        ({"rms_norm_eps": float("nan")}, CorruptModelError, "rms_norm_eps"),
        ({"num_key_value_heads": 4}, UnsupportedModelError, "num_key_value_heads"),
    ],
)
def test_config_is_refused_by_name(changes: dict[str, Any], error: type[ModelLoadError], field: str) -> None:
    config = {**SIZES, "model_type": "llama", **changes}
    with pytest.raises(error) as caught:
        architecture(config).parse_config(config)
    assert caught.value.field == field


def test_smollm2_config() -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "is_llama_config": True,
        "max_position_embeddings": 8192,
        "model_type": "llama",
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_interleaved": False,
        "rope_scaling": None,
        "rope_theta": 100000,
        "tie_word_embeddings": True,
        "vocab_size": 49152,
    }
    parsed = llama.parse_config(config)
    assert (parsed.head_dim, parsed.rope.theta, parsed.tied_head) == (64, 100000.0, True)
    assert num_parameters(llama.abstract(parsed)) == 134_515_008


def test_weights_are_described_once() -> None:
    """Random weights have the specs' structure and shapes; the same seed gives the same arrays."""
    specs = llama.abstract(llama.parse_config(CONFIGS["qwen3_tied_biased"]))
    first, again = random_weights(specs, seed=7), random_weights(specs, seed=7)
    other = random_weights(specs, seed=8)
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.array_equal(first.embedding, other.embedding)
    is_spec = lambda node: hasattr(node, "sources")
    jax.tree.map(
        lambda spec, array: np.testing.assert_equal(array.shape, spec.shape), specs, first, is_leaf=is_spec
    )
