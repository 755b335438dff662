"""The registered identities, and what a checkpoint must be to bear one of these names.

Same-sounding checkpoints differ in ways that load and then speak nonsense; so a name is checked against
every member of its configuration that matters. Values: the models' published ``config.json``.
"""

import copy
import re
from collections.abc import Mapping
from typing import Any

from ninfer_jax.errors import UnsupportedModelError

_TEXT = {
    "vocab_size": 248320,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "attn_output_gate": True,
    "attention_bias": False,
    "hidden_act": "silu",
    "full_attention_interval": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262144,
    "mtp_num_hidden_layers": 1,
}
_ROPE = {
    "rope_type": "default",
    "rope_theta": 10_000_000,
    "partial_rotary_factor": 0.25,
    "mrope_section": [11, 11, 10],
    "mrope_interleaved": True,
}
_VISION = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "in_channels": 3,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [],
}
_TOKENS = {
    "image_token_id": 248056,
    "video_token_id": 248057,
    "vision_start_token_id": 248053,
    "vision_end_token_id": 248054,
    "tie_word_embeddings": False,
}


def _expected(model_type: str, text: Mapping[str, Any], out_hidden_size: int) -> dict[str, Mapping[str, Any]]:
    return {
        "": {"model_type": model_type, **_TOKENS},
        "text_config": {**_TEXT, **text, "model_type": f"{model_type}_text"},
        "text_config.rope_parameters": _ROPE,
        "vision_config": {**_VISION, "out_hidden_size": out_hidden_size},
    }


_DENSE_27B = _expected(
    "qwen3_5",
    {
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 48,
        "intermediate_size": 17408,
    },
    out_hidden_size=5120,
)
_SPARSE_35B = _expected(
    "qwen3_5_moe",
    {
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "linear_num_value_heads": 32,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
    out_hidden_size=2048,
)
REGISTERED: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "qwen3.6-27b": _DENSE_27B,
    "qwen3.8-27b": _DENSE_27B,
    "qwen3.6-35b-a3b": _SPARSE_35B,
}
"""Identity to expected members by section of ``config.json``."""

_PRECISION = re.compile(r"-(fp8|bf16)$")


def resolve_identity(model_id: str, config: Mapping[str, Any]) -> str:
    """A name as it is, or the registered identity that it spells (whatever the case and precision).

    Raises UnsupportedModelError naming the first member that is not that identity's. Absent members
    pass: ``parse_config`` demands those that have no safe default.
    """
    identity = _PRECISION.sub("", model_id.lower())
    if identity not in REGISTERED:
        return model_id
    for path, members in REGISTERED[identity].items():
        section = _section(config, path)
        for key, value in members.items():
            field, found = f"{path}.{key}".lstrip("."), section.get(key)
            if found is not None and found != value:
                raise UnsupportedModelError(
                    f"{identity}: {field} is {found!r}, expected {value!r}", field=field
                )
    return identity


def identity_config(identity: str) -> dict[str, Any]:
    """The ``config.json`` of a registered identity, as far as these members go."""
    sections = copy.deepcopy({path: dict(members) for path, members in REGISTERED[identity].items()})
    text = {**sections["text_config"], "rope_parameters": sections["text_config.rope_parameters"]}
    return {**sections[""], "text_config": text, "vision_config": sections["vision_config"]}


def _section(config: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The section at ``path``, empty where there is none."""
    section: Any = config
    for key in filter(None, path.split(".")):
        section = section.get(key) if isinstance(section, Mapping) else None
    return section if isinstance(section, Mapping) else {}
