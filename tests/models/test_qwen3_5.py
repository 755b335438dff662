"""Hybrids against files that transformers wrote, their weights' names, and what their configs refuse."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.errors import CorruptModelError, ModelLoadError, UnsupportedModelError
from ninfer_jax.models.base import KVPool, LayerKind, RecurrentState
from ninfer_jax.models.registry import architecture
from ninfer_jax.models.weights import random_weights, spec_leaves
from tests.models.cases import GOLDEN, Driver, random_tensors, weights_from
from tests.models.hybrid_cases import CONFIGS, DELTA_NET, MULTIMODAL, SCALE, SIZES


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_states_match_golden_file(name):
    module = architecture(CONFIGS[name])
    config = module.parse_config(CONFIGS[name])
    specs = module.abstract(config)
    weights = weights_from(specs, random_tensors(specs, scale=SCALE))
    with np.load(GOLDEN / f"qwen3_5_{name}.npz") as file:
        golden = dict(file)
    tokens, positions = golden["tokens"], golden["positions"]
    driver = Driver(config, weights, 1)
    for start, stop in ((0, 70), (70, 135), *((at, at + 1) for at in range(135, 140))):
        width = 1 if stop - start == 1 else 80
        padded = np.zeros((3, 1, width), np.int32)
        padded[:, 0, : stop - start] = positions[:, start:stop]
        driver.step([tokens[start:stop]], width, padded)
    close(np.stack(driver.logits[0])[golden["kept"]], golden["logits"])
    state = driver.state.layers[DELTA_NET]
    assert isinstance(state, RecurrentState)
    close(state.rule[0], golden["rule"])
    close(state.conv[0], golden["conv"])


@pytest.mark.parametrize("width", [1, 16])
def test_rows_without_tokens_leave_every_slot_bit_identical(width):
    """A wholly padded row writes to the null page alone, even when it names a live row's slot."""
    module = architecture(CONFIGS["dense"])
    config = module.parse_config(CONFIGS["dense"])
    driver = Driver(config, random_weights(module.abstract(config)), 2)
    driver.step([[5, 6, 7], [8, 9]])
    before = driver.state
    driver.step([[], []], width)
    for old, new in zip(before.layers, driver.state.layers, strict=True):
        first_page = 1 if isinstance(old, KVPool) else 0
        for was, now in zip(old, new, strict=True):
            assert np.asarray(was[first_page:]).tobytes() == np.asarray(now[first_page:]).tobytes()


def test_names_follow_the_kind_of_checkpoint():
    """The multimodal classes put the decoder one level deeper; the head is at the top in both."""
    text = names_of(CONFIGS["dense"])
    nested = names_of(MULTIMODAL)
    assert "model.layers.0.linear_attn.in_proj_qkv.weight" in text
    assert nested == {name.replace("model.", "model.language_model.", 1) for name in text}
    assert "lm_head.weight" in nested
    assert "lm_head.weight" not in names_of({**CONFIGS["dense"], "tie_word_embeddings": True})


def names_of(config: dict[str, Any]) -> set[str]:
    module = architecture(config)
    specs = spec_leaves(module.abstract(module.parse_config(config)))
    return {source for spec in specs for source in spec.sources}


def test_ids_without_a_token_are_never_sampled():
    """248,320 rows, 248,077 tokens: the rows between have weights, and score minus infinity."""
    module = architecture(CONFIGS["dense"])
    sizes = {"vocab_size": 248320, "hidden_size": 4, "num_hidden_layers": 1}
    config = module.parse_config({**CONFIGS["dense"], **sizes})
    weights = random_weights(module.abstract(config))
    logits = np.asarray(module.logits(config, weights, jnp.ones((1, 4))))
    assert np.isfinite(logits[0, :248077]).all()
    assert (logits[0, 248077:] == -np.inf).all()


def test_layers_follow_the_interval_where_types_are_absent():
    config = architecture(CONFIGS["dense"]).parse_config({**CONFIGS["dense"], "full_attention_interval": 2})
    delta, full = LayerKind.GATED_DELTA_NET, LayerKind.FULL_ATTENTION
    assert config.layer_kinds == (delta, full, delta, full)


ROPE = SIZES["rope_parameters"]


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        (
            {"rope_parameters": {**ROPE, "rope_type": "yarn"}},
            UnsupportedModelError,
            "rope_parameters.rope_type",
        ),
        (
            {"rope_parameters": {**ROPE, "mrope_interleaved": False}},
            UnsupportedModelError,
            "rope_parameters.mrope_interleaved",
        ),
        (
            {"rope_parameters": {**ROPE, "mrope_section": [4, 2, 1]}},
            CorruptModelError,
            "rope_parameters.mrope_section",
        ),
        ({"rope_parameters": {"rope_type": "default"}}, CorruptModelError, "rope_theta"),
        ({"attn_output_gate": False}, UnsupportedModelError, "attn_output_gate"),
        ({"attention_bias": True}, UnsupportedModelError, "attention_bias"),
        ({"hidden_act": "gelu"}, UnsupportedModelError, "hidden_act"),
        ({"mamba_ssm_dtype": "bfloat16"}, UnsupportedModelError, "mamba_ssm_dtype"),
        ({"mtp_num_hidden_layers": 2}, UnsupportedModelError, "mtp_num_hidden_layers"),
        ({"quantization_config": {"bits": 4}}, UnsupportedModelError, "quantization_config"),
        ({"layer_types": ["linear_attention"]}, CorruptModelError, "layer_types"),
        ({"layer_types": ["mamba"] * 4}, UnsupportedModelError, "layer_types[0]"),
        ({"linear_num_value_heads": 5}, UnsupportedModelError, "linear_num_value_heads"),
        ({"num_key_value_heads": 3}, UnsupportedModelError, "num_attention_heads"),
        ({"linear_conv_kernel_dim": 1}, UnsupportedModelError, "linear_conv_kernel_dim"),
        ({"linear_key_head_dim": None}, CorruptModelError, "linear_key_head_dim"),
        ({"intermediate_size": None}, CorruptModelError, "intermediate_size"),
    ],
)
def test_config_is_refused_by_name(changes: dict[str, Any], error: type[ModelLoadError], field: str):
    config = {**CONFIGS["dense"], **changes}
    with pytest.raises(error) as caught:
        architecture(config).parse_config(config)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("section", "changes", "error", "field"),
    [
        ("text_config", {"hidden_act": "gelu"}, UnsupportedModelError, "text_config.hidden_act"),
        ("text_config", {"model_type": "qwen3_next"}, UnsupportedModelError, "text_config.model_type"),
        (
            "vision_config",
            {"deepstack_visual_indexes": [3]},
            UnsupportedModelError,
            "vision_config.deepstack_visual_indexes",
        ),
        ("vision_config", {"depth": 0}, CorruptModelError, "vision_config.depth"),
    ],
)
def test_sections_are_refused_by_name(section, changes, error, field):
    config = {**MULTIMODAL, section: {**MULTIMODAL[section], **changes}}
    with pytest.raises(error) as caught:
        architecture(config).parse_config(config)
    assert caught.value.field == field


def test_a_multimodal_config_without_text_is_refused():
    with pytest.raises(CorruptModelError, match="text_config"):
        architecture(MULTIMODAL).parse_config({**MULTIMODAL, "text_config": None})
