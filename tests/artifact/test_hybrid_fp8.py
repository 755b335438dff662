"""Hybrids in block-scaled FP8, as Qwen publishes them: every matrix of the blocks, each expert by itself."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ninfer_jax.artifact.convert import convert
from ninfer_jax.artifact.hf_source import HuggingFaceSource
from ninfer_jax.artifact.loader import load, open_checkpoint
from ninfer_jax.artifact.summary import summarise
from ninfer_jax.errors import CorruptModelError, ModelLoadError
from tests.artifact import checkpoints
from tests.artifact.test_groups import equal, group_tensors, multimodal

BLOCK = 16
SECTION = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [BLOCK, BLOCK],
}
EXPERT_PARTS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


def single_experts(tensors: checkpoints.Tensors) -> checkpoints.Tensors:
    """Stacked experts ``[E, rows, columns]`` as one tensor for each matrix of each expert."""
    single: checkpoints.Tensors = {}
    for name, array in tensors.items():
        prefix, _, last = name.rpartition(".")
        if not prefix.endswith(".experts"):
            single[name] = array
            continue
        for index, matrices in enumerate(array):
            parts = EXPERT_PARTS[last]
            for part, matrix in zip(parts, np.split(matrices, len(parts)), strict=True):
                single[f"{prefix}.{index}.{part}.weight"] = matrix
    return single


def quantised(tensors: checkpoints.Tensors) -> tuple[checkpoints.Tensors, checkpoints.Tensors]:
    """Projections in FP8 with their scales, and what they stand for."""
    stored: dict[str, Any] = {}
    meant: dict[str, Any] = {}
    rng = np.random.default_rng(3)
    for name, array in tensors.items():
        is_projection = "proj" in name and array.ndim == 2 and "visual" not in name
        stored[name] = meant[name] = array
        if not is_projection:
            continue
        grid = tuple(-(-size // BLOCK) for size in array.shape)
        scale = rng.uniform(0.001, 0.1, grid).astype(np.float32)
        spread = np.kron(scale, np.ones((BLOCK, BLOCK), np.float32))[: array.shape[0], : array.shape[1]]
        stored[name] = (array / spread).clip(-448, 448).astype(ml_dtypes.float8_e4m3fn)
        stored[name + "_scale_inv"] = scale
        meant[name] = stored[name].astype(np.float32) * spread
    return stored, meant


def write(path: Path, name: str, *, shards: int = 1, **changes: Any) -> tuple[Path, Path]:
    """The FP8 folder, and one of what it stands for in float32."""
    config = multimodal(name)
    stored, meant = quantised(single_experts({**checkpoints.tensors(config), **group_tensors(config)}))
    tensors = {key: array for key, array in {**stored, **changes}.items() if array is not None}
    folder = checkpoints.write_folder(
        path / "fp8", {**config, "quantization_config": SECTION}, tensors, shards=shards
    )
    return folder, checkpoints.write_folder(path / "plain", config, meant)


@pytest.mark.parametrize(("name", "weights"), [("dense", "f32"), ("sparse", "f32"), ("sparse", "int8")])
def test_a_whole_checkpoint(tmp_path: Path, name: str, weights: Any) -> None:
    """Shards, experts one by one, and the prediction head; the artifact holds the same."""
    folder, plain = write(tmp_path, name, shards=3)
    assert summarise(folder).formats["F8_E4M3"] > 20
    model, expected = (load(path, weights=weights, groups=["mtp"]) for path in (folder, plain))
    equal((model.weights, model.groups), (expected.weights, expected.groups))
    source = open_checkpoint(folder)
    assert not hasattr(source, "manifest")
    convert(source, tmp_path / "h.ninfer", weights)
    restored = load(tmp_path / "h.ninfer", weights=weights, groups=["mtp"])
    equal((model.weights, model.groups), (restored.weights, restored.groups))
    assert "quantization_config" not in model.hf_config


ONE = "model.language_model.layers.0.linear_attn.in_proj_z.weight"
EXPERT = "model.language_model.layers.0.mlp.experts.2.up_proj.weight"
MTP = "mtp.layers.0.self_attn.o_proj.weight"


@pytest.mark.parametrize("tensor", [ONE, EXPERT, MTP])
@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (None, "_scale_inv is missing"),
        (np.ones((1, 1), np.float32), r"_scale_inv has shape \[1, 1\], expected"),
        (np.ones(3, np.float32), r"_scale_inv has shape \[3\], expected"),
    ],
)
def test_a_scale_that_is_missing_or_misshaped(tmp_path: Path, tensor: str, scale: Any, message: str) -> None:
    """Named before any weight is read, by whatever opens the checkpoint."""
    folder, _ = write(tmp_path, "sparse", **{tensor + "_scale_inv": scale})
    for refused in (lambda: load(folder), lambda: summarise(folder)):
        with pytest.raises(CorruptModelError, match=message) as error:
            refused()
        assert error.value.field == tensor + "_scale_inv"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({ONE: np.ones((48, 48), np.float32)}, "_scale_inv is there, but .* is F32"),
        ({ONE: None}, "_scale_inv is left over|in_proj_z.weight is missing"),
        (
            {ONE + "_scale_inv": np.full((3, 3), np.nan, np.float32)},
            f"{ONE} holds a value that is not finite",
        ),
        (
            {"model.language_model.norm.weight": np.ones(48, ml_dtypes.float8_e4m3fn)},
            r"norm\.weight is FP8 and has no two axes",
        ),
    ],
)
def test_scales_that_cannot_be_right(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder, _ = write(tmp_path, "dense", **changes)
    with pytest.raises(ModelLoadError, match=message):
        load(folder, weights="f32")


def test_no_weight_is_read_before_the_scales_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = write(tmp_path, "dense", **{ONE + "_scale_inv": None})
    monkeypatch.setattr(HuggingFaceSource, "read", lambda *_: pytest.fail("a weight was read"))
    with pytest.raises(CorruptModelError, match="is missing"):
        load(folder)
