"""Loaded weights and logits against transformers' own readers: GGUF and saved checkpoint folders."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.gguf_source import GGUFSource
from ninfer_jax.artifact.loader import load
from ninfer_jax.errors import ConfigError
from ninfer_jax.models import llama
from tests.artifact import checkpoints
from tests.models.cases import Driver, hugging_face_model, random_tensors

pytestmark = pytest.mark.parity

PROMPT = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 2, 198]


def logits(model: Any, ids: list[int]) -> Any:
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def specs_of(hf_config: dict[str, Any]) -> Any:
    return llama.abstract(llama.parse_config(hf_config))


@pytest.fixture(scope="module")
def demo_path() -> Path:
    try:
        return demo_model()
    except ConfigError:
        pytest.skip("the demo model is not installed")


@pytest.fixture(scope="module")
def demo_oracle(demo_path: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        demo_path.parent, gguf_file=demo_path.name, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


@pytest.mark.filterwarnings("ignore")
def test_demo_weights_are_transformers_weights(demo_path: Path, demo_oracle: Any) -> None:
    source = GGUFSource(demo_path)
    theirs = {name: tensor.numpy() for name, tensor in demo_oracle.state_dict().items()}
    assert set(theirs) - {"lm_head.weight"} == set(source.tensors)
    for name, tensor in source.tensors.items():
        np.testing.assert_array_equal(source.read(name, 0, tensor.shape[0]), theirs[name], err_msg=name)
    for key in ("hidden_size", "num_key_value_heads", "max_position_embeddings", "vocab_size", "head_dim"):
        assert source.config[key] == getattr(demo_oracle.config, key)


@pytest.mark.filterwarnings("ignore")
def test_demo_logits(demo_path: Path, demo_oracle: Any) -> None:
    model = load(demo_path, weights="f32")
    driver = Driver(model.config, model.weights, 1)
    driver.step([PROMPT])
    expected = logits(demo_oracle, PROMPT)
    np.testing.assert_allclose(np.stack(driver.logits[0]), expected, atol=2e-3, rtol=0)
    assert (np.argmax(driver.logits[0], axis=1) == expected.argmax(axis=1)).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_gguf_that_transformers_reads(tmp_path: Path, model_type: str) -> None:
    """One small file, read by both: Q8_0 matrices, an untied head, odd rope base and epsilon."""
    import torch
    from transformers import AutoModelForCausalLM

    head_dim = 128 if model_type == "qwen3" else 16  # transformers reads no qwen3 head size from GGUF
    hf_config = checkpoints.config(
        model_type, tie_word_embeddings=False, rope_theta=54321.0, rms_norm_eps=3e-5, head_dim=head_dim
    )
    path = checkpoints.write_gguf(
        tmp_path / "m.gguf", hf_config, random_tensors(specs_of(hf_config)), GGMLQuantizationType.Q8_0
    )
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).eval()
    model = load(path, weights="f32")
    driver = Driver(model.config, model.weights, 1)
    row = np.random.default_rng(0).integers(0, 96, 40).tolist()
    driver.step([row])
    np.testing.assert_allclose(np.stack(driver.logits[0]), logits(oracle, row), atol=1e-4, rtol=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shard_size", ["1GB", "20KB"])
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_folder_that_transformers_saved(tmp_path: Path, model_type: str, shard_size: str) -> None:
    """``save_pretrained`` writes rope and dtype members its own way, and shards by size."""
    hf_config = checkpoints.config(model_type)
    del hf_config["architectures"]
    config = load(
        checkpoints.write_folder(tmp_path / "own", hf_config, checkpoints.tensors(hf_config)), weights="f32"
    ).config
    oracle = hugging_face_model(hf_config, random_tensors(specs_of(hf_config)))
    oracle.save_pretrained(tmp_path / "theirs", max_shard_size=shard_size)
    (tmp_path / "theirs" / "tokenizer.json").write_text(checkpoints.TOKENIZER_JSON)
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists() == (shard_size == "20KB")
    model = load(tmp_path / "theirs", weights="f32")
    assert model.config == config
    driver = Driver(model.config, model.weights, 1)
    row = np.random.default_rng(0).integers(0, 96, 40).tolist()
    driver.step([row])
    np.testing.assert_allclose(np.stack(driver.logits[0]), logits(oracle, row), atol=1e-4, rtol=0)
