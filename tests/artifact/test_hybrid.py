"""Qwen3.5 hybrids through every source: stored layouts, float32 leaves, FP8."""

from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from ninfer_jax.artifact.assemble import BF16, load_weights
from ninfer_jax.artifact.container import Artifact
from ninfer_jax.artifact.convert import convert
from ninfer_jax.artifact.hf_source import HuggingFaceSource
from ninfer_jax.artifact.loader import load
from ninfer_jax.artifact.random_source import RandomSource
from ninfer_jax.artifact.recognise import recognise
from ninfer_jax.artifact.stored_weights import restore_weights
from ninfer_jax.errors import CorruptModelError
from tests.artifact import checkpoints
from tests.models import hybrid_cases

TEXT_ONLY = hybrid_cases.CONFIGS["dense"]
MULTIMODAL = hybrid_cases.MULTIMODAL
DELTA = f"model.layers.{hybrid_cases.DELTA_NET}.linear_attn."


def equal(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def folder(path: Path, config: Any = TEXT_ONLY, **changes: Any) -> Path:
    return checkpoints.write_folder(path / "hybrid", config, {**checkpoints.tensors(config), **changes})


def delta_net(weights: Any) -> Any:
    return weights.layers[hybrid_cases.DELTA_NET].mixer


@pytest.mark.parametrize("weights", ["f32", "bf16", "int8"])
def test_artifact_is_the_source(tmp_path: Path, weights: Any) -> None:
    path = folder(tmp_path)
    convert(HuggingFaceSource(path), tmp_path / "h.ninfer", weights)
    equal(load(path, weights=weights).weights, load(tmp_path / "h.ninfer", weights=weights).weights)


def test_stored_layouts(tmp_path: Path) -> None:
    """The convolution is transposed; fused projections keep their order."""
    tensors = checkpoints.tensors(TEXT_ONLY)
    mixer = delta_net(load(folder(tmp_path), weights="f32").weights)
    np.testing.assert_array_equal(mixer.conv, tensors[DELTA + "conv1d.weight"][:, 0].T)
    fused = [tensors[f"{DELTA}in_proj_{part}.weight"] for part in ("qkv", "z")]
    np.testing.assert_array_equal(mixer.projection, np.concatenate(fused))


def test_decay_stays_float32_beside_bfloat16_activations(tmp_path: Path) -> None:
    """From bfloat16 files and from artifacts, whatever the activation dtype."""
    path = folder(tmp_path, **{DELTA + "A_log": np.ones(6, ml_dtypes.bfloat16)})
    source = HuggingFaceSource(path)
    specs = recognise(source.config).specs
    convert(source, tmp_path / "h.ninfer", "bf16")
    artifact = Artifact(tmp_path / "h.ninfer")
    loaded = load_weights(source, specs, "bf16", BF16)
    restored = restore_weights(artifact.weights_path, specs, artifact.manifest.tensors, "bf16", "bf16", BF16)
    for tree in (loaded, restored):
        assert delta_net(tree).a_log.dtype == delta_net(tree).dt_bias.dtype == np.float32
        assert tree.norm.dtype == delta_net(tree).conv.dtype == BF16
    equal(loaded, restored)


def test_multimodal_checkpoint_as_a_text_model(tmp_path: Path) -> None:
    """The language model has its prefix; it is the one of a checkpoint of text alone."""
    model = load(folder(tmp_path, MULTIMODAL), weights="f32")
    text = {
        name.replace("model.language_model.", "model."): array
        for name, array in checkpoints.tensors(MULTIMODAL).items()
    }
    alone = checkpoints.write_folder(tmp_path / "alone", TEXT_ONLY, text)
    equal(model.weights, load(alone, weights="f32").weights)


def test_fp8_projections(tmp_path: Path) -> None:
    section = {"quant_method": "fp8", "weight_block_size": [16, 16]}
    tensors: dict[str, Any] = checkpoints.tensors(TEXT_ONLY)
    name = DELTA + "in_proj_qkv.weight"
    values = tensors[name].astype(ml_dtypes.float8_e4m3fn)
    grid = tuple(-(-size // 16) for size in values.shape)
    scale = np.random.default_rng(0).uniform(0.5, 2, grid).astype(np.float32)
    tensors |= {name: values, name + "_scale_inv": scale}
    path = checkpoints.write_folder(tmp_path / "fp8", {**TEXT_ONLY, "quantization_config": section}, tensors)
    spread = np.kron(scale, np.ones((16, 16), np.float32))[: values.shape[0], : values.shape[1]]
    projection = delta_net(load(path, weights="f32").weights).projection
    np.testing.assert_array_equal(projection[: values.shape[0]], values.astype(np.float32) * spread)


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptModelError, match=rf"{DELTA}conv1d\.weight has shape \[64, 4\]"):
        load(folder(tmp_path, **{DELTA + "conv1d.weight": np.ones((64, 4), np.float32)}))
    with pytest.raises(CorruptModelError, match=rf"{DELTA}A_log holds a value that is not finite"):
        load(folder(tmp_path, **{DELTA + "A_log": np.full(6, np.nan, np.float32)}))


def test_random_hybrid(tmp_path: Path) -> None:
    source = RandomSource(tmp_path / "config.json", TEXT_ONLY, seed=5)
    convert(source, tmp_path / "r.ninfer", "int8")
    expected = load_weights(source, recognise(TEXT_ONLY).specs, "int8", np.float32)
    equal(load(tmp_path / "r.ninfer", weights="int8").weights, expected)
