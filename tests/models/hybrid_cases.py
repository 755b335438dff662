"""Tiny Qwen3.5 hybrids that exercise every branch of the family."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SCALE = 0.1
"""Of random matrices: with 0.15 one unit in the last place of the weights already moves logits by 1e-4."""

DELTA_NET = 1
"""A layer of this kind in every config."""

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    },
}
ODD_HEADS = {
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 16,
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 9,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
    "layer_types": ["full_attention", "linear_attention", "linear_attention", "linear_attention"],
    "rope_parameters": {**SIZES["rope_parameters"], "mrope_section": [2, 1, 1]},
}
EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "dense": {**SIZES, "model_type": "qwen3_5_text", "intermediate_size": 80},
    "dense_odd_heads": {
        **SIZES,
        **ODD_HEADS,
        "model_type": "qwen3_5_text",
        "intermediate_size": 72,
        "tie_word_embeddings": True,
    },
    "sparse": {**SIZES, **EXPERTS, "model_type": "qwen3_5_moe_text"},
    "sparse_odd": {
        **SIZES,
        **ODD_HEADS,
        **EXPERTS,
        "model_type": "qwen3_5_moe_text",
        "num_experts": 5,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": 24,
    },
    "dense_one_head": {
        **SIZES,
        "model_type": "qwen3_5_text",
        "intermediate_size": 80,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 5,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 3,
    },
}


def scattered_positions(length: int, seed: int) -> NDArray[np.int64]:
    """``[3, length]`` positions whose axes differ, as after an image, never far from the ordinals."""
    drift = np.random.default_rng(seed).integers(0, 9, (3, length))
    return np.arange(length) + drift


MULTIMODAL: dict[str, Any] = {
    "model_type": "qwen3_5",
    "image_token_id": 90,
    "video_token_id": 91,
    "vision_start_token_id": 92,
    "vision_end_token_id": 93,
    "tie_word_embeddings": False,
    "text_config": CONFIGS["dense"],
    "vision_config": {
        "depth": 2,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_heads": 4,
        "num_position_embeddings": 36,
        "patch_size": 4,
        "out_hidden_size": 48,
    },
}
