"""GGUF metadata to the ``config.json`` that the same model has on Hugging Face."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_jax.errors import CorruptModelError, UnsupportedModelError

MODEL_TYPES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""GGUF architecture (the same word as Hugging Face's ``model_type``) to the Hugging Face class."""

LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_CONTEXT = 1.0, 4.0, 8192
"""GGUF keeps Llama 3's rope scaling only as factors; every published model uses these parameters."""


def config_from_metadata(
    metadata: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    rope_factors: NDArray[np.float32] | None,
) -> dict[str, Any]:
    """``shapes`` are the tensors by Hugging Face name: they decide ties, biases and the vocabulary size.

    Raises CorruptModelError or UnsupportedModelError naming the metadata key.
    """
    read = _Metadata(metadata)
    model_type = str(metadata["general.architecture"])
    _refuse_experts(read)
    embedding = shapes.get("model.embed_tokens.weight")
    if embedding is None:
        raise CorruptModelError("tensor token_embd.weight is missing", field="token_embd.weight")
    heads, hidden = read.size("attention.head_count"), read.size("embedding_length")
    head_dim = read.size("attention.key_length", hidden // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        read.expect(key, head_dim)
    config: dict[str, Any] = {
        "architectures": [MODEL_TYPES[model_type]],
        "model_type": model_type,
        "vocab_size": embedding[0],
        "hidden_size": hidden,
        "intermediate_size": read.size("feed_forward_length"),
        "num_hidden_layers": read.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": read.size("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": read.real("attention.layer_norm_rms_epsilon"),
        "rope_theta": read.real("rope.freq_base", 10000.0),
        "max_position_embeddings": read.size("context_length"),
        "tie_word_embeddings": "lm_head.weight" not in shapes,
        "attention_bias": "model.layers.0.self_attn.o_proj.bias" in shapes
        or (model_type == "llama" and "model.layers.0.self_attn.q_proj.bias" in shapes),
        "mlp_bias": "model.layers.0.mlp.down_proj.bias" in shapes,
    }
    scaling = _rope_scaling(read, rope_factors, config)
    if scaling is not None:
        config["rope_scaling"] = scaling
    for key in ("bos_token_id", "eos_token_id"):
        if isinstance(token := metadata.get(f"tokenizer.ggml.{key}"), int):
            config[key] = token
    return config


class _Metadata:
    """Typed access to the keys of the file's own architecture."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self._prefix = str(metadata["general.architecture"])

    def get(self, key: str) -> Any:
        return self._metadata.get(f"{self._prefix}.{key}")

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        value = default if value is None else value
        if isinstance(value, list):  # one value a layer
            if len(set(value)) != 1:
                raise UnsupportedModelError(f"{self._prefix}.{key} differs between layers", field=key)
            value = value[0]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CorruptModelError(f"{self._prefix}.{key} is {value!r}, not a size", field=key)
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """The shortest decimal of the stored float32: 1e-5, not 9.999999747378752e-06."""
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise CorruptModelError(f"{self._prefix}.{key} is {value!r}, not a positive number", field=key)
        return float(str(np.float32(value)))

    def expect(self, key: str, supported: Any) -> None:
        value = self.get(key)
        if value is not None and value != supported:
            raise UnsupportedModelError(
                f"{self._prefix}.{key} {value!r} is not supported (only {supported!r})", field=key
            )


def _refuse_experts(read: _Metadata) -> None:
    if read.get("expert_count"):
        raise UnsupportedModelError(
            f"a mixture of {read.get('expert_count')} experts is not supported in GGUF", field="expert_count"
        )


def _rope_scaling(
    read: _Metadata, factors: NDArray[np.float32] | None, config: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Hugging Face's ``rope_scaling``, which ``parse_config`` of the model then accepts or refuses."""
    kind = read.get("rope.scaling.type")
    if kind not in (None, "none"):
        return {
            "rope_type": kind,
            "factor": read.real("rope.scaling.factor"),
            "original_max_position_embeddings": read.get("rope.scaling.original_context_length"),
        }
    if read.get("rope.scale_linear") not in (None, 1.0):
        return {"rope_type": "linear", "factor": read.real("rope.scale_linear")}
    if factors is None:
        return None
    factor = float(factors.max())
    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LLAMA3_LOW,
        "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_CONTEXT,
    }
    is_llama3 = 2 * factors.size == config["head_dim"] and np.allclose(
        factors, llama3_factors(config["head_dim"], config["rope_theta"], factor), rtol=1e-3
    )
    if not is_llama3:
        raise UnsupportedModelError(
            "rope_freqs.weight holds frequency factors other than Llama 3's", field="rope_freqs.weight"
        )
    return scaling


def llama3_factors(head_dim: int, theta: float, factor: float) -> NDArray[np.float32]:
    """``[head_dim / 2]``: what each rope frequency is divided by, as Llama 3.1 defines it."""
    frequencies = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    wavelengths = 2 * np.pi / frequencies
    ramp = np.clip((LLAMA3_CONTEXT / wavelengths - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW), 0.0, 1.0)
    return (1.0 / ((1.0 - ramp) / factor + ramp)).astype(np.float32)
