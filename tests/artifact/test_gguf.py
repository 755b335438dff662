"""GGUF files: every block format, configuration, row order, tokenizer tables, and damage."""

import json
from pathlib import Path
from typing import Any

import gguf
import jax
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Q

from ninfer_jax.artifact.gguf_config import llama3_factors
from ninfer_jax.artifact.gguf_source import GGUFSource, hf_name
from ninfer_jax.artifact.loader import load
from ninfer_jax.errors import CorruptModelError, ModelLoadError, UnsupportedModelError
from tests.artifact import checkpoints

BLOCKS_OF_32 = [Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1]
K_QUANTS = [Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K]


@pytest.mark.parametrize("kind", [Q.F32, *BLOCKS_OF_32, *K_QUANTS], ids=lambda kind: kind.name)
def test_rows_are_what_gguf_dequantises(tmp_path: Path, kind: Q) -> None:
    """Whole tensors and row ranges agree with the gguf library's own reading of the same file."""
    wide = {"hidden_size": 256, "intermediate_size": 256, "head_dim": 64} if kind in K_QUANTS else {}
    hf_config = checkpoints.config("qwen3", **wide)
    path = checkpoints.write_gguf(tmp_path / "m.gguf", hf_config, checkpoints.tensors(hf_config), kind)
    source = GGUFSource(path)
    expected = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}
    for name, tensor in source.tensors.items():
        whole = np.asarray(source.read(name, 0, tensor.shape[0]), np.float32)
        assert whole.shape == tensor.shape
        np.testing.assert_array_equal(whole, expected[checkpoints.gguf_name(name)])
        np.testing.assert_array_equal(np.asarray(source.read(name, 3, 7), np.float32), whole[3:7])


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_loads_the_weights_that_were_written(tmp_path: Path, model_type: str, tied: bool) -> None:
    """The same model as a GGUF file and as a Hugging Face folder is the same weight tree and config."""
    hf_config = checkpoints.config(model_type, tie_word_embeddings=tied)
    tensors = checkpoints.tensors(hf_config)
    from_gguf = load(checkpoints.write_gguf(tmp_path / "m.gguf", hf_config, tensors), weights="f32")
    from_folder = load(checkpoints.write_folder(tmp_path / "m", hf_config, tensors), weights="f32")
    assert from_gguf.config == from_folder.config
    jax.tree.map(np.testing.assert_array_equal, from_gguf.weights, from_folder.weights)


def test_biased_llama(tmp_path: Path) -> None:
    """Biases of q and k are interleaved like their rows."""
    hf_config = checkpoints.config(attention_bias=True, mlp_bias=True)
    tensors = checkpoints.tensors(hf_config)
    from_gguf = load(checkpoints.write_gguf(tmp_path / "m.gguf", hf_config, tensors), weights="f32")
    from_folder = load(checkpoints.write_folder(tmp_path / "m", hf_config, tensors), weights="f32")
    jax.tree.map(np.testing.assert_array_equal, from_gguf.weights, from_folder.weights)


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_names_are_the_gguf_librarys(model_type: str) -> None:
    """Our table against the map with which llama.cpp's converter writes files."""
    hf_config = checkpoints.config(model_type, tie_word_embeddings=False)
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == model_type)
    names = gguf.get_tensor_name_map(arch, hf_config["num_hidden_layers"])
    for name in checkpoints.tensors(hf_config):
        assert hf_name(names.get_name(name, (".weight", ".bias"))) == name


def test_config_members(tmp_path: Path) -> None:
    hf_config = checkpoints.config()
    path = checkpoints.write_gguf(tmp_path / "m.gguf", hf_config, checkpoints.tensors(hf_config))
    found = GGUFSource(path).config
    assert {key: found[key] for key in hf_config} == hf_config


@pytest.mark.parametrize(
    ("metadata", "scaling"),
    [
        ({}, None),
        ({"llama.rope.scaling.type": "none"}, None),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, ("linear", 4.0)),
        ({"llama.rope.scale_linear": 2.0}, ("linear", 2.0)),
    ],
)
def test_rope_scaling_of_metadata(
    tmp_path: Path, metadata: dict[str, Any], scaling: tuple[str, float] | None
) -> None:
    hf_config = checkpoints.config()
    path = checkpoints.write_gguf(
        tmp_path / "m.gguf", hf_config, checkpoints.tensors(hf_config), metadata=metadata
    )
    found = GGUFSource(path).config.get("rope_scaling")
    assert (found and (found["rope_type"], found["factor"])) == scaling


def test_llama3_rope_factors(tmp_path: Path) -> None:
    """Llama 3's factors come back as its parameters; other factors are refused by name."""
    hf_config = checkpoints.config(rope_theta=500000.0, head_dim=64)
    tensors, factors = checkpoints.tensors(hf_config), llama3_factors(64, 500000.0, 8.0)
    assert 1.0 == factors[0] < factors[-1] == 8.0
    path = checkpoints.write_gguf(
        tmp_path / "a.gguf", hf_config, tensors, extra={"rope_freqs.weight": factors}
    )
    source = GGUFSource(path)
    assert source.config["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert "rope_freqs.weight" not in source.tensors
    other = np.linspace(1, 8, 32, dtype=np.float32)
    path = checkpoints.write_gguf(tmp_path / "b.gguf", hf_config, tensors, extra={"rope_freqs.weight": other})
    with pytest.raises(UnsupportedModelError, match=r"rope_freqs\.weight"):
        load(path)


def test_text_resources(tmp_path: Path) -> None:
    hf_config = checkpoints.config()
    metadata = {"general.sampling.temp": 0.5}
    path = checkpoints.write_gguf(
        tmp_path / "m.gguf", hf_config, checkpoints.tensors(hf_config), metadata=metadata
    )
    model = load(path)
    assert model.resources["chat_template.jinja"].decode() == checkpoints.TEMPLATE
    generation = json.loads(model.resources["generation_config.json"])
    assert generation["eos_token_id"] == [2, 0]  # the declared end first, then <|endoftext|>
    assert generation["temperature"] == 0.5
    tokenizer = json.loads(model.resources["gguf_tokenizer.json"])
    assert tokenizer["tokens"][:3] == ["<|endoftext|>", "<s>", "<|im_end|>"]
    assert (tokenizer["model"], tokenizer["pre"]) == ("gpt2", "smollm")
    assert tokenizer["merges"] == checkpoints.MERGES
    assert (tokenizer["bos_token_id"], tokenizer["eos_token_id"]) == (1, 2)
    assert tokenizer["add_bos_token"] is False
    assert "unknown_token_id" not in tokenizer


@pytest.mark.parametrize(
    ("file", "model_id"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "qwen2.5-0.5b-instruct"),
        ("Llama-3.2-1B-f16.gguf", "Llama-3.2-1B"),
        ("my.model.gguf", "my.model"),
        ("model.gguf", "Tiny-Model"),
        ("ggml-model-Q8_0.gguf", "Tiny-Model"),
    ],
)
def test_model_id(tmp_path: Path, file: str, model_id: str) -> None:
    hf_config = checkpoints.config()
    path = checkpoints.write_gguf(tmp_path / file, hf_config, checkpoints.tensors(hf_config))
    assert GGUFSource(path).model_id == model_id


@pytest.mark.parametrize(
    ("metadata", "error", "name"),
    [
        ({"general.architecture": "mamba"}, UnsupportedModelError, "mamba"),
        ({"llama.expert_count": 8}, UnsupportedModelError, "experts"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0},
            UnsupportedModelError,
            "yarn",
        ),
        ({"llama.rope.dimension_count": 8}, UnsupportedModelError, "rope.dimension_count"),
        ({"llama.block_count": None}, CorruptModelError, "block_count"),
        ({"llama.block_count": 3}, CorruptModelError, "model.layers.2"),
        ({"llama.block_count": 1}, CorruptModelError, "model.layers.1"),
        ({"llama.block_count": 4_000_000_000}, CorruptModelError, "4000000000 layers"),
        ({"llama.embedding_length": "many"}, CorruptModelError, "embedding_length"),
        ({"llama.attention.head_count": [4, 2]}, UnsupportedModelError, "head_count"),
        ({"tokenizer.ggml.tokens": None}, CorruptModelError, "tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": ["a"] * 97}, CorruptModelError, "97 tokens"),
        ({"tokenizer.ggml.token_type": [1, 1]}, CorruptModelError, "token_type"),
        ({"tokenizer.ggml.eos_token_id": 9999}, CorruptModelError, "eos_token_id"),
        ({"split.count": 2}, UnsupportedModelError, "split"),
    ],
)
def test_metadata_that_is_refused(
    tmp_path: Path, metadata: dict[str, Any], error: type[ModelLoadError], name: str
) -> None:
    hf_config = checkpoints.config()
    path = checkpoints.write_gguf(
        tmp_path / "m.gguf", hf_config, checkpoints.tensors(hf_config), metadata=metadata
    )
    with pytest.raises(error, match=name):
        load(path)


def test_unknown_tensor_is_left_over(tmp_path: Path) -> None:
    hf_config = checkpoints.config()
    extra = {"blk.0.attn_sinks.weight": np.ones(4, np.float32)}
    path = checkpoints.write_gguf(tmp_path / "m.gguf", hf_config, checkpoints.tensors(hf_config), extra=extra)
    with pytest.raises(CorruptModelError, match=r"attn_sinks\.weight is left over"):
        load(path)


def test_unsupported_block_format(tmp_path: Path) -> None:
    hf_config = checkpoints.config("qwen3", hidden_size=256, intermediate_size=256, head_dim=64)
    path = checkpoints.write_gguf(tmp_path / "m.gguf", hf_config, checkpoints.tensors(hf_config), Q.TQ1_0)
    with pytest.raises(UnsupportedModelError, match="TQ1_0"):
        load(path)


def test_non_finite_value(tmp_path: Path) -> None:
    hf_config = checkpoints.config()
    tensors = checkpoints.tensors(hf_config)
    tensors["model.layers.1.mlp.down_proj.weight"][5, 7] = np.nan
    for kind in (Q.F32, Q.F16, Q.BF16):
        path = checkpoints.write_gguf(tmp_path / "m.gguf", hf_config, tensors, kind)
        for weights in ("f32", "bf16", "int8"):
            with pytest.raises(CorruptModelError, match=r"layers\.1\.mlp\.down_proj\.weight .* not finite"):
                load(path, weights=weights)


def test_truncation_anywhere_is_an_error_of_ours(tmp_path: Path) -> None:
    hf_config = checkpoints.config()
    whole = checkpoints.write_gguf(
        tmp_path / "m.gguf", hf_config, checkpoints.tensors(hf_config), Q.Q8_0
    ).read_bytes()
    header_end = whole.index(b"blk.1.") + 2000
    cut = tmp_path / "cut.gguf"
    for size in [*range(0, header_end, 37), *range(header_end, len(whole) - 1, 4999), len(whole) - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(ModelLoadError):
            load(cut)


def test_a_flipped_header_byte_never_crashes(tmp_path: Path) -> None:
    """Any single damaged header byte gives a model or an error of ours, quickly."""
    hf_config = checkpoints.config(num_hidden_layers=1)
    whole = bytearray(
        checkpoints.write_gguf(tmp_path / "m.gguf", hf_config, checkpoints.tensors(hf_config)).read_bytes()
    )
    damaged = tmp_path / "damaged.gguf"
    rng = np.random.default_rng(0)
    for position in rng.integers(0, whole.index(b"output_norm.weight") + 64, 200):
        copy = bytearray(whole)
        copy[position] ^= int(rng.integers(1, 256))
        damaged.write_bytes(copy)
        try:
            load(damaged)
        except ModelLoadError:
            continue
