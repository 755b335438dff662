"""The shapes that are checked: those of the registered models, or tiny ones of the same structure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_jax.artifact.recognise import Recognised, recognise
from ninfer_jax.cli.plan import first_layers
from ninfer_jax.models.identities import identity_config
from ninfer_jax.models.qwen3_5_config import Qwen35Config

DENSE, SPARSE = "qwen3.6-27b", "qwen3.6-35b-a3b"
_TINY_ROPE = {"partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2]}
_TINY_TEXT = {
    "vocab_size": 512,
    "hidden_size": 64,
    "head_dim": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_TINY_FEED_FORWARD: Mapping[str, Mapping[str, int]] = {
    DENSE: {"intermediate_size": 128},
    SPARSE: {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
    },
}


def hf_config(identity: str, layers: int, *, tiny: bool) -> dict[str, Any]:
    """The first ``layers`` of a registered model, at its own widths or at tiny ones."""
    config = first_layers(identity_config(identity), layers)
    if tiny:
        config["text_config"] |= {**_TINY_TEXT, **_TINY_FEED_FORWARD[identity]}
        config["text_config"]["rope_parameters"] = {
            **config["text_config"]["rope_parameters"],
            **_TINY_ROPE,
        }
    return config


def recognised(identity: str, layers: int, *, tiny: bool) -> Recognised:
    return recognise(hf_config(identity, layers, tiny=tiny))


@dataclass(frozen=True, slots=True)
class Grid:
    """Which calls of each kernel are checked. ``decode`` and ``prefill`` are (rows, context) and (columns,
    start); ``few`` and ``many`` are rows of a product; a kernel reads other memory at each call until it has
    read ``rotated`` bytes, so that nothing is found in a cache of that size."""

    decode: tuple[tuple[int, int], ...]
    prefill: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    rotated: int
    max_context: int


TRUE = Grid(
    decode=tuple((rows, context) for context in (1024, 8192, 32768) for rows in (1, 8)),
    prefill=((512, 0), (1024, 7168)),
    rows=(1, 8, 512),
    rotated=256 << 20,
    max_context=8192,
)
TINY = Grid(
    decode=((2, 70),),
    prefill=((32, 100),),
    rows=(1, 16),
    rotated=1 << 16,
    max_context=256,
)


def models(*, tiny: bool) -> dict[str, Qwen35Config]:
    """Configurations by the short names that stand in the table."""
    found = {"27B": DENSE, "35B": SPARSE}
    configs = {name: recognised(identity, 4, tiny=tiny).config for name, identity in found.items()}
    return {name: config for name, config in configs.items() if isinstance(config, Qwen35Config)}
