"""Hugging Face folders: single and sharded files, dtypes, FP8 blocks, and damage, each named."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from ninfer_jax.artifact.hf_source import HuggingFaceSource
from ninfer_jax.artifact.loader import load
from ninfer_jax.errors import CorruptModelError, ModelLoadError, UnsupportedModelError
from ninfer_jax.kernels.linear import QuantArray, quantise_rows
from tests.artifact import checkpoints

CONFIG = checkpoints.config()
QKV = "model.layers.0.self_attn.q_proj.weight"


def folder(path: Path, **changes: Any) -> Path:
    """A good folder, with tensors replaced, or dropped where the value is None."""
    tensors = checkpoints.tensors(CONFIG)
    for name, array in changes.items():
        if array is None:
            del tensors[name]
        else:
            tensors[name] = array
    return checkpoints.write_folder(path / "tiny-model", CONFIG, tensors)


def test_single_and_sharded_are_the_same(tmp_path: Path) -> None:
    tensors = checkpoints.tensors(CONFIG)
    single = load(checkpoints.write_folder(tmp_path / "a", CONFIG, tensors), weights="f32")
    sharded = load(checkpoints.write_folder(tmp_path / "b", CONFIG, tensors, shards=3), weights="f32")
    jax.tree.map(np.testing.assert_array_equal, single.weights, sharded.weights)
    expected = np.concatenate([tensors[QKV.replace("q_proj", f"{part}_proj")] for part in "qkv"])
    np.testing.assert_array_equal(single.weights.layers[0].qkv, expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_widened_exactly(tmp_path: Path, dtype: Any) -> None:
    tensors = {name: array.astype(dtype) for name, array in checkpoints.tensors(CONFIG).items()}
    model = load(checkpoints.write_folder(tmp_path / "m", CONFIG, tensors), weights="f32")
    np.testing.assert_array_equal(
        model.weights.embedding, tensors["model.embed_tokens.weight"].astype(np.float32)
    )


def test_weight_formats(tmp_path: Path) -> None:
    """f32 and bf16 are casts; int8 is each row's own scale; vectors keep the activation dtype."""
    path, tensors = folder(tmp_path), checkpoints.tensors(CONFIG)
    embedding = tensors["model.embed_tokens.weight"]
    bf16 = load(path, weights="bf16")
    np.testing.assert_array_equal(bf16.weights.embedding, embedding.astype(ml_dtypes.bfloat16))
    int8 = load(path, weights="int8")
    assert isinstance(int8.weights.embedding, QuantArray)
    values, scale = quantise_rows(embedding)
    np.testing.assert_array_equal(int8.weights.embedding.values, values)
    np.testing.assert_array_equal(int8.weights.embedding.scale, scale)
    assert int8.weights.norm.dtype == np.float32
    assert int8.weight_bytes < bf16.weight_bytes < load(path, weights="f32").weight_bytes


def test_identity_and_resources(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    (path / "README.md").write_text("not a resource")
    model = load(path)
    assert model.identity.model_id == "tiny-model"
    assert set(model.resources) == {
        "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
    }  # fmt: skip
    assert model.resources["tokenizer_config.json"] == b'{"bos_token": "<s>"}'
    assert model.num_parameters == sum(array.size for array in checkpoints.tensors(CONFIG).values())
    assert model.source.formats == {"F32": len(checkpoints.tensors(CONFIG))}


def test_a_cache_snapshot_is_called_by_its_repository(tmp_path: Path) -> None:
    path = tmp_path / "models--Org--Some-Model" / "snapshots" / ("0" * 40)
    checkpoints.write_folder(path, CONFIG, checkpoints.tensors(CONFIG))
    assert load(path).identity.model_id == "Some-Model"


def fp8_checkpoint(path: Path, block: tuple[int, int]) -> tuple[Path, dict[str, Any]]:
    """The dense checkpoint with its projections in block-scaled FP8, and what they stand for."""
    section = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": list(block)}
    stored, meant = {}, {}
    rng = np.random.default_rng(1)
    for name, array in checkpoints.tensors(CONFIG).items():
        if "_proj" not in name:
            stored[name] = meant[name] = array
            continue
        grid = (-(-array.shape[0] // block[0]), -(-array.shape[1] // block[1]))
        scale = rng.uniform(0.001, 0.1, grid).astype(np.float32)
        spread = np.kron(scale, np.ones(block, np.float32))[: array.shape[0], : array.shape[1]]
        stored[name] = (array / spread).clip(-448, 448).astype(ml_dtypes.float8_e4m3fn)
        stored[name + "_scale_inv"] = scale
        meant[name] = stored[name].astype(np.float32) * spread
    return checkpoints.write_folder(path, {**CONFIG, "quantization_config": section}, stored), meant


@pytest.mark.parametrize("block", [(128, 128), (32, 48), (16, 64)])
def test_fp8_blocks(tmp_path: Path, block: tuple[int, int]) -> None:
    """Block sizes that do and do not divide the shapes; row ranges that cut blocks."""
    path, meant = fp8_checkpoint(tmp_path / "m", block)
    source = HuggingFaceSource(path)
    assert set(source.tensors) == set(meant)
    for name, array in meant.items():
        np.testing.assert_array_equal(source.read(name, 0, array.shape[0]), array)
        np.testing.assert_array_equal(source.read(name, 5, 11), array[5:11])
    model = load(path, weights="f32")
    np.testing.assert_array_equal(model.weights.layers[1].down, meant["model.layers.1.mlp.down_proj.weight"])


def test_fp8_scale_that_is_missing_or_misshaped(tmp_path: Path) -> None:
    path, _ = fp8_checkpoint(tmp_path / "m", (32, 32))
    other, _ = fp8_checkpoint(tmp_path / "n", (16, 32))
    (path / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    with pytest.raises(CorruptModelError, match="weight_scale_inv has shape"):
        load(path)
    plain = {**checkpoints.tensors(CONFIG)}
    plain[QKV] = plain[QKV].astype(ml_dtypes.float8_e4m3fn)
    (path / "model.safetensors").write_bytes(checkpoints.safetensors_bytes(plain))
    with pytest.raises(CorruptModelError, match=f"{QKV}_scale_inv is missing"):
        load(path)
    checkpoints.write_folder(path, CONFIG, plain)
    with pytest.raises(UnsupportedModelError, match=f"{QKV} is FP8"):
        load(path)


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "fp8"}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
    ],
)
def test_other_quantisations_are_refused(tmp_path: Path, section: dict[str, Any], name: str) -> None:
    path = folder(tmp_path)
    (path / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": section}))
    with pytest.raises(UnsupportedModelError, match=name):
        load(path)


def test_missing_tensor(tmp_path: Path) -> None:
    with pytest.raises(CorruptModelError, match=f"{QKV} is missing") as error:
        load(folder(tmp_path, **{QKV: None}))
    assert error.value.field == QKV


def test_left_over_tensor(tmp_path: Path) -> None:
    with pytest.raises(CorruptModelError, match=r"extra\.weight is left over"):
        load(folder(tmp_path, **{"extra.weight": np.ones((2, 2), np.float32)}))


def test_buffers_and_a_tied_head_are_not_left_over(tmp_path: Path) -> None:
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32),
        "lm_head.weight": np.ones((96, 64), np.float32),
    }
    plain, more = load(folder(tmp_path / "a")), load(folder(tmp_path / "b", **extra))
    jax.tree.map(np.testing.assert_array_equal, more.weights, plain.weights)


def test_misshaped_tensor(tmp_path: Path) -> None:
    with pytest.raises(CorruptModelError, match=rf"{QKV} has shape \[64, 63\], expected \[64, 64\]"):
        load(folder(tmp_path, **{QKV: np.ones((64, 63), np.float32)}))


def test_tensor_of_a_wrong_dtype(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{QKV} has dtype I64"):
        load(folder(tmp_path, **{QKV: np.ones((64, 64), np.int64)}))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("weights", ["f32", "bf16", "int8"])
def test_non_finite_tensor(tmp_path: Path, value: float, dtype: Any, weights: Any) -> None:
    array = np.ones((64, 64), dtype)
    array[63, 1] = value
    with pytest.raises(CorruptModelError, match=f"{QKV} holds a value that is not finite"):
        load(folder(tmp_path, **{QKV: array}), weights=weights)


def test_truncated_safetensors(tmp_path: Path) -> None:
    path = folder(tmp_path)
    whole = (path / "model.safetensors").read_bytes()
    for size in [0, 1, 7, 8, 9, 100, 1000, *range(2000, len(whole), 9999), len(whole) - 1]:
        (path / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(CorruptModelError):
            load(path)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b'{"a": 3}',
        b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
        b'{"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}}',
    ],
)
def test_forged_safetensors_header(tmp_path: Path, header: bytes) -> None:
    path = folder(tmp_path)
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(CorruptModelError):
        load(path)


def test_shards_that_disagree_with_their_index(tmp_path: Path) -> None:
    path = checkpoints.write_folder(tmp_path / "m", CONFIG, checkpoints.tensors(CONFIG), shards=2)
    index = path / "model.safetensors.index.json"
    listed = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": {**listed, "ghost.weight": listed[QKV]}}))
    with pytest.raises(CorruptModelError, match=r"ghost\.weight is not in"):
        load(path)
    index.write_text(json.dumps({"weight_map": {k: v for k, v in listed.items() if k != QKV}}))
    with pytest.raises(CorruptModelError, match=f"does not list {QKV}"):
        load(path)
    index.write_text(json.dumps({"weight_map": {**listed, QKV: "../secret.safetensors"}}))
    with pytest.raises(CorruptModelError, match="secret"):
        load(path)
    index.write_text(json.dumps({"weight_map": listed}))
    (path / listed[QKV]).unlink()
    with pytest.raises(CorruptModelError, match="shard"):
        load(path)


def test_folder_without_a_tokenizer(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "tokenizer.json").unlink()
    with pytest.raises(CorruptModelError, match=r"no tokenizer \(tokenizer\.json or tokenizer\.model\)"):
        load(path)


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no such file"):
        load(tmp_path / "absent")
    with pytest.raises(ModelLoadError, match=r"neither a config\.json nor a ninfer\.json"):
        load(tmp_path)
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelLoadError, match=r"name one of its files: some\.gguf"):
        load(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelLoadError, match=r"not a \.gguf file"):
        load(tmp_path / "notes.txt")


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("ninfer_jax.artifact.loader.HuggingFaceSource", refuse)
    with pytest.raises(ModelLoadError, match=r"tiny-model: Permission denied"):
        load(folder(tmp_path))


def test_unknown_architecture(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "config.json").write_text(json.dumps({**CONFIG, "model_type": "mamba"}))
    with pytest.raises(UnsupportedModelError, match="mamba"):
        load(path)


def test_more_layers_than_tensors(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 10**12}))
    with pytest.raises(CorruptModelError, match="1000000000000 layers"):
        load(path)


def test_config_that_is_damaged(tmp_path: Path) -> None:
    path = folder(tmp_path)
    for text, message in (('{"a": ', "is not JSON"), ("[]", "is not a JSON object")):
        (path / "config.json").write_text(text)
        with pytest.raises(CorruptModelError, match=rf"config\.json {message}"):
            load(path)
