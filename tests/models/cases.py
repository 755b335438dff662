"""Tiny dense configs, random checkpoints, a Hugging Face oracle, and a driver that feeds models in steps."""

import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ninfer_jax.models.base import ModelState, StepInputs
from ninfer_jax.models.registry import architecture
from ninfer_jax.models.state import allocate_state
from ninfer_jax.models.weights import format_array, is_spec, spec_leaves, to_layout

GOLDEN = Path(__file__).parent / "golden"

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama_tied": {**SIZES, "model_type": "llama", "tie_word_embeddings": True},
    "llama_untied_biased": {
        **SIZES,
        "model_type": "llama",
        "tie_word_embeddings": False,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "llama3_rope": {
        **SIZES,
        "model_type": "llama",
        "tie_word_embeddings": True,
        "rope_parameters": LLAMA3_ROPE,
    },
    "llama_linear_rope": {
        **SIZES,
        "model_type": "llama",
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
    },
    "qwen2": {**SIZES, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2_mha": {**SIZES, "model_type": "qwen2", "tie_word_embeddings": False, "num_key_value_heads": 6},
    "qwen3": {**SIZES, "model_type": "qwen3", "tie_word_embeddings": False, "head_dim": 16},
    "qwen3_tied_biased": {
        **SIZES,
        "model_type": "qwen3",
        "tie_word_embeddings": True,
        "attention_bias": True,
    },
}


def random_tensors(specs: Any, seed: int = 0, scale: float = 0.15) -> dict[str, NDArray[np.float32]]:
    """A checkpoint's tensors by name: norm gains away from one, biases away from zero.

    A DeltaNet's memory is made long (``A_log`` near -3) and its taps wide: where its output for a token is
    nearly nothing, its norm enlarges rounding noise, and two correct programs disagree.
    RandomState's stream is frozen for all time, which golden files need.
    """
    tensors = {}
    for spec in spec_leaves(specs):
        for source, shape in zip(spec.sources, spec.source_shapes, strict=True):
            random = np.random.RandomState((zlib.crc32(source.encode()) + seed) % 2**32)
            centre, spread = 0.0, scale
            if source.endswith("norm.weight") and spec.init == "ones":
                centre = 1.0
            elif source.endswith("A_log"):
                centre = -3.0
            elif source.endswith("conv1d.weight"):
                spread = 0.5
            tensors[source] = (random.randn(*shape) * spread + centre).astype(np.float32)
    return tensors


def hugging_face_model(config: Mapping[str, Any], tensors: Mapping[str, NDArray[np.float32]]) -> Any:
    """A float32 transformers model with exactly these tensors."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    members = {key: value for key, value in config.items() if key != "model_type"}
    hf_config = AutoConfig.for_model(config["model_type"], **members)
    model = AutoModelForCausalLM.from_config(hf_config, attn_implementation="eager", dtype=torch.float32)
    state = {name: torch.from_numpy(array) for name, array in tensors.items()}
    keys = model.load_state_dict(state, strict=False)
    assert not keys.unexpected_keys
    assert set(keys.missing_keys) <= {"lm_head.weight"}
    model.tie_weights()
    return model.eval()


def weights_from(specs: Any, tensors: Mapping[str, NDArray[Any]]) -> Any:
    def assemble(spec: Any) -> Any:
        array = to_layout(spec, np.concatenate([tensors[source] for source in spec.sources]))
        assert array.shape == spec.shape
        return format_array(spec, array, "f32", jnp.float32)

    return jax.tree.map(assemble, specs, is_leaf=is_spec)


@partial(jax.jit, static_argnames=("module", "config"))
def _step(module: Any, config: Any, weights: Any, state: ModelState, inputs: StepInputs) -> Any:
    hidden, state = module.forward(config, weights, state, inputs)
    return (module.logits(config, weights, hidden), hidden), state


class Driver:
    """Feeds rows of tokens to a model step by step and keeps every row's logits and hidden.

    Pages are handed out from a shuffled list, so that a table is never the identity.
    """

    def __init__(self, config: Any, weights: Any, num_rows: int, pages_per_row: int = 4) -> None:
        self.config, self.weights = config, weights
        self.module = architecture({"model_type": config.model_type})
        num_pages = num_rows * pages_per_row + 1
        self.state: ModelState = allocate_state(config, num_pages, num_rows, jnp.float32, jnp.float32)
        pages = np.random.default_rng(5).permutation(np.arange(1, num_pages))
        self.tables = pages.reshape(num_rows, pages_per_row).astype(np.int32)
        self.used = np.zeros(num_rows, np.int32)
        self.logits: list[list[NDArray[np.float32]]] = [[] for _ in range(num_rows)]
        self.hidden: list[list[NDArray[np.float32]]] = [[] for _ in range(num_rows)]

    def step(
        self, rows: Sequence[Sequence[int]], width: int | None = None, positions: NDArray[Any] | None = None
    ) -> None:
        """One forward of ``rows[b]`` new tokens for each row b, padded to ``width`` columns.

        ``positions [A, B, width]`` default to the cache ordinals on every rope axis."""
        width = width or max(len(row) for row in rows)
        tokens = np.zeros((len(rows), width), np.int32)
        for index, row in enumerate(rows):
            tokens[index, : len(row)] = row
        lengths = np.array([len(row) for row in rows], np.int32)
        if positions is None:
            ordinals = self.used[:, None] + np.arange(width, dtype=np.int32)
            positions = np.broadcast_to(ordinals, (self.config.rope_axes, *ordinals.shape))
        slots = np.arange(len(rows), dtype=np.int32)
        inputs = StepInputs(
            *(jnp.asarray(part) for part in (tokens, positions, self.used, lengths, self.tables, slots))
        )
        outputs, self.state = _step(self.module, self.config, self.weights, self.state, inputs)
        for kept, output in zip((self.logits, self.hidden), outputs, strict=True):
            host = np.asarray(output)
            for index, row in enumerate(rows):
                kept[index].extend(host[index, : len(row)])
        self.used = self.used + lengths
