"""The vision tower of a folder that transformers saved, carried into an artifact and back."""

from pathlib import Path

import numpy as np
import pytest

from ninfer_jax.artifact.convert import convert
from ninfer_jax.artifact.hf_source import HuggingFaceSource
from ninfer_jax.artifact.loader import load
from tests.artifact import checkpoints
from tests.models.hybrid_cases import MULTIMODAL

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]


def test_the_tower_is_transformers_tower(tmp_path: Path) -> None:
    """Its names and shapes are the model's: a tensor too few, too many or of another shape is refused."""
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    text = {key: value for key, value in MULTIMODAL["text_config"].items() if key != "model_type"}
    rest = {key: value for key, value in MULTIMODAL.items() if key not in ("model_type", "text_config")}
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, **rest))
    folder = tmp_path / "theirs"
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(checkpoints.TOKENIZER_JSON)
    manifest = convert(HuggingFaceSource(folder), tmp_path / "h.ninfer", "f32")
    tower = load(tmp_path / "h.ninfer", weights="f32", groups=["vision"]).groups["vision"]
    theirs = {name: tensor.numpy() for name, tensor in model.model.visual.state_dict().items()}
    assert manifest.groups["vision"].num_parameters == sum(array.size for array in theirs.values())
    for name, ours in (
        ("patch_embed.proj.weight", tower.patch.weight),
        ("pos_embed.weight", tower.positions),
        ("blocks.1.attn.qkv.bias", tower.blocks[1].qkv.bias),
        ("blocks.1.mlp.linear_fc2.weight", tower.blocks[1].fc2.weight),
        ("merger.linear_fc2.weight", tower.merger_fc2.weight),
    ):
        np.testing.assert_array_equal(ours, theirs[name].reshape(ours.shape))
