"""Tiny checkpoints, written from scratch: Hugging Face folders and GGUF files of random dense models."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
from gguf import GGMLQuantizationType as Q
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import BPE

from ninfer_jax.models.registry import architecture
from ninfer_jax.models.weights import spec_leaves

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
TOKENS = ["<|endoftext|>", "<s>", "<|im_end|>", *map(chr, range(ord("!"), ord("{"))), "\u0120", "th", "the"]
MERGES = ["t h", "th e"]
TOKENIZER_JSON = Tokenizer(
    BPE({token: i for i, token in enumerate(TOKENS)}, [("t", "h"), ("th", "e")])
).to_str()

Tensors = dict[str, NDArray[Any]]


def config(model_type: str = "llama", **members: Any) -> dict[str, Any]:
    name = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[model_type]
    return {**CONFIG, "architectures": [f"{name}ForCausalLM"], "model_type": model_type, **members}


def tensors(hf_config: Mapping[str, Any], seed: int = 0) -> Tensors:
    """Random float32 tensors under the names and shapes that the model wants."""
    module = architecture(hf_config)
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(shape, np.float32) * np.float32(0.1)
        for spec in spec_leaves(module.abstract(module.parse_config(hf_config)))
        for name, shape in zip(spec.sources, spec.source_shapes, strict=True)
    }


def safetensors_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The file format by hand: the library's NumPy side writes neither bfloat16 nor float8."""
    names = {
        "float32": "F32",
        "float16": "F16",
        "bfloat16": "BF16",
        "float8_e4m3fn": "F8_E4M3",
        "int64": "I64",
    }
    header, offset = {}, 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": names[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in arrays.values())


def write_folder(
    folder: Path, hf_config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, shards: int = 1
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hf_config))
    (folder / "tokenizer.json").write_text(TOKENIZER_JSON)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors_bytes(arrays))
        return folder
    weight_map = {}
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(arrays.items())[index::shards])
        (folder / file).write_bytes(safetensors_bytes(part))
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
}


def gguf_name(name: str) -> str:
    stem, suffix = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, index, block = stem.split(".", 3)
        return f"blk.{index}.{GGUF_NAMES[block]}.{suffix}"
    return f"{GGUF_NAMES[stem]}.{suffix}"


def interleave(array: NDArray[Any], heads: int) -> NDArray[Any]:
    """What llama.cpp's converter does to q and k of Llama models."""
    half = array.shape[0] // heads // 2
    return array.reshape(heads, 2, half, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def encode(array: NDArray[np.float32], kind: Q) -> NDArray[Any]:
    """Quantised rows. K-quants, which gguf cannot write, become random bytes with finite scales."""
    if not kind.name.endswith("_K"):
        return gguf.quantize(array, kind)
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(array.size)
    shape = (*array.shape[:-1], array.shape[-1] // block * block_bytes)
    return rng.integers(0, 0x38, shape, np.uint8)  # float16 below 0.5 at any offset


def write_gguf(
    path: Path,
    hf_config: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    kind: Q = Q.F32,
    *,
    metadata: Mapping[str, Any] | None = None,
    extra: Mapping[str, NDArray[Any]] | None = None,
) -> Path:
    """``metadata`` overrides keys (None drops one); ``extra`` adds tensors under their GGUF names."""
    arch, size = hf_config["model_type"], hf_config["vocab_size"]
    writer = gguf.GGUFWriter(path, arch)
    values: dict[str, Any] = {
        "general.name": "Tiny Model",
        f"{arch}.block_count": hf_config["num_hidden_layers"],
        f"{arch}.context_length": hf_config["max_position_embeddings"],
        f"{arch}.embedding_length": hf_config["hidden_size"],
        f"{arch}.feed_forward_length": hf_config["intermediate_size"],
        f"{arch}.attention.head_count": hf_config["num_attention_heads"],
        f"{arch}.attention.head_count_kv": hf_config["num_key_value_heads"],
        f"{arch}.attention.key_length": hf_config["head_dim"],
        f"{arch}.attention.value_length": hf_config["head_dim"],
        f"{arch}.attention.layer_norm_rms_epsilon": hf_config["rms_norm_eps"],
        f"{arch}.rope.freq_base": hf_config["rope_theta"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*TOKENS, *(f"<unused{i}>" for i in range(len(TOKENS), size))],
        "tokenizer.ggml.token_type": [3, 3, 3] + [1] * (size - 3),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
        **(metadata or {}),
    }
    for key, value in values.items():
        if value is not None:
            writer.add_key_value(key, value, *_gguf_type(value))
    for name, array in arrays.items():
        _add(writer, gguf_name(name), _stored_order(name, array, hf_config), kind)
    for name, array in (extra or {}).items():
        _add(writer, name, array, Q.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _stored_order(name: str, array: NDArray[Any], hf_config: Mapping[str, Any]) -> NDArray[Any]:
    if hf_config["model_type"] != "llama":
        return array
    if ".q_proj." in name:
        return interleave(array, hf_config["num_attention_heads"])
    return interleave(array, hf_config["num_key_value_heads"]) if ".k_proj." in name else array


def _add(writer: gguf.GGUFWriter, name: str, array: NDArray[Any], kind: Q) -> None:
    if array.ndim == 1 or kind is Q.F32:
        writer.add_tensor(name, array)
    else:
        writer.add_tensor(name, encode(array, kind), raw_dtype=kind)


def _gguf_type(value: Any) -> tuple[Any, ...]:
    types = gguf.GGUFValueType
    if isinstance(value, list):
        return types.ARRAY, types.STRING if isinstance(value[0], str) else types.INT32
    kinds = {bool: types.BOOL, int: types.UINT32, float: types.FLOAT32, str: types.STRING}
    return (kinds[type(value)],)


def bfloat16(arrays: Mapping[str, NDArray[Any]]) -> Tensors:
    return {name: array.astype(ml_dtypes.bfloat16) for name, array in arrays.items()}
