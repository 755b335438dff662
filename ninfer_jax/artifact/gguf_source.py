"""A GGUF file as a Hugging Face checkpoint: its configuration, tensor names and row order.

Llama files store the rows of q and k interleaved for the original rotary layout; they are handed out
in the half-split order of Hugging Face checkpoints. The permutation acts on whole rows, so it is an
index into the still quantised rows and costs nothing.
"""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_jax.artifact.gguf_config import MODEL_TYPES, config_from_metadata
from ninfer_jax.artifact.gguf_file import GGUFFile
from ninfer_jax.artifact.gguf_text import text_resources
from ninfer_jax.artifact.source import SourceKind, TensorInfo, count_formats
from ninfer_jax.errors import CorruptModelError, UnsupportedModelError

_TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
QUANTISATION = re.compile(r"[.-](i?q\d\w*|bf16|f16|f32|fp16|fp32)$", re.IGNORECASE)
GENERIC_NAMES = ("model", "ggml-model", "unsloth")
ROPE_FACTORS = "rope_freqs.weight"
"""Not a weight: Llama 3's rope scaling, folded into the configuration."""


class GGUFSource:
    """One ``.gguf`` file of the Llama, Qwen2 or Qwen3 family."""

    kind: SourceKind = "gguf"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GGUFFile(path)
        metadata = self._file.metadata
        architecture = metadata.get("general.architecture")
        if architecture not in MODEL_TYPES:
            known = ", ".join(sorted(MODEL_TYPES))
            raise UnsupportedModelError(
                f"{path}: GGUF architecture {architecture!r} is not supported ({known} are)",
                field="general.architecture",
            )
        if metadata.get("split.count", 1) > 1:
            raise UnsupportedModelError(
                f"{path}: split GGUF files are not supported; join them with llama-gguf-split --merge",
                field="split.count",
            )
        self._gguf_names = {hf_name(name): name for name in self._file.tensors if name != ROPE_FACTORS}

    @cached_property
    def config(self) -> Mapping[str, Any]:
        tensors = self._file.tensors
        factors = None
        if ROPE_FACTORS in tensors:
            factors = self._file.rows(ROPE_FACTORS, slice(None)).astype(np.float32)
        shapes = {name: tensors[gguf].shape for name, gguf in self._gguf_names.items()}
        return config_from_metadata(self._file.metadata, shapes, factors)

    @property
    def model_id(self) -> str:
        """The file's name without its quantisation; ``general.name``, which converters often fill with
        training notes, only where the file's name says nothing."""
        stem = QUANTISATION.sub("", self.path.stem)
        name = self._file.metadata.get("general.name") or stem
        return re.sub(r"\s+", "-", str(name).strip()) if stem.lower() in GENERIC_NAMES else stem

    @cached_property
    def resources(self) -> Mapping[str, bytes]:
        tokens = len(self._file.metadata.get("tokenizer.ggml.tokens", ()))
        if tokens > self.config["vocab_size"]:
            raise CorruptModelError(
                f"{self.path}: {tokens} tokens, but token_embd.weight has {self.config['vocab_size']} rows",
                field="token_embd.weight",
            )
        config = json.dumps(self.config, indent=2).encode()
        return {"config.json": config, **text_resources(self._file.metadata)}

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        found = {name: self._file.tensors[gguf] for name, gguf in self._gguf_names.items()}
        return {name: TensorInfo(t.shape, t.type.name, t.nbytes) for name, t in found.items()}

    @property
    def formats(self) -> Mapping[str, int]:
        return count_formats(self.tensors)

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        rows: slice | NDArray[np.intp] = slice(start, stop)
        heads = self._interleaved_heads(name)
        if heads:
            rows = half_split_rows(self.tensors[name].shape[0], heads)[start:stop]
        return self._file.rows(self._gguf_names[name], rows)

    def _interleaved_heads(self, name: str) -> int:
        """Heads whose rows are interleaved in this tensor; 0 where rows are in order."""
        if self.config["model_type"] != "llama":
            return 0
        if ".q_proj." in name:
            return int(self.config["num_attention_heads"])
        return int(self.config["num_key_value_heads"]) if ".k_proj." in name else 0


def hf_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; a name we do not know stays, to be refused as left over."""
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in _BLOCK:
        return name
    return f"model.layers.{match[1]}.{_BLOCK[match[2]]}.{match[3]}"


def half_split_rows(rows: int, heads: int) -> NDArray[np.intp]:
    """For each half-split row of a q or k projection, the interleaved row that holds it."""
    return np.arange(rows).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
