"""Groups of weights that a checkpoint may carry beside its text decoder, and that it is served without.

A group is a weights tree of its own: whole or absent, stored, checked and uploaded by itself.
"""

from collections.abc import Mapping

from ninfer_jax.config import WeightFormat
from ninfer_jax.models import qwen3_5_mtp, qwen3_5_vision
from ninfer_jax.models.base import ModelConfig, Weights
from ninfer_jax.models.qwen3_5_config import Qwen35Config

GROUP_PREFIXES: Mapping[str, str] = {"mtp": qwen3_5_mtp.PREFIX, "vision": qwen3_5_vision.PREFIX}
"""What the tensors of each group are called in a Hugging Face checkpoint."""


def abstract_groups(config: ModelConfig) -> dict[str, Weights]:
    """The groups that a model of this configuration may have, with an ArraySpec for each array."""
    groups: dict[str, Weights] = {}
    if isinstance(config, Qwen35Config):
        if config.mtp_layers:
            groups["mtp"] = qwen3_5_mtp.abstract_mtp(config)
        if config.vision is not None:
            groups["vision"] = qwen3_5_vision.abstract_vision(config.vision)
    return groups


def group_format(group: str, weight_format: WeightFormat) -> WeightFormat:
    """The format that a group has beside text weights of ``weight_format``: the vision tower is small, runs
    once an image, and is not quantised."""
    return "bf16" if group == "vision" and weight_format == "int8" else weight_format
