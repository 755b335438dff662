"""From a ``config.json`` to the module that implements it."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from ninfer_jax.errors import CorruptModelError, UnsupportedModelError
from ninfer_jax.models.base import Architecture

MODULES = {
    "llama": "llama",
    "qwen2": "llama",
    "qwen3": "llama",
    "qwen3_5": "qwen3_5",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe": "qwen3_5_moe",
    "qwen3_5_moe_text": "qwen3_5_moe",
}
"""``model_type`` to a module of this package, imported on demand."""


def architecture(config: Mapping[str, Any]) -> Architecture:
    """The architecture module for a Hugging Face config. Raises UnsupportedModelError by name."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise CorruptModelError("config.json lacks model_type", field="model_type")
    module = MODULES.get(model_type)
    if module is None:
        known = ", ".join(sorted(MODULES))
        raise UnsupportedModelError(
            f"model_type {model_type!r} is not supported (known: {known})", field="model_type"
        )
    return cast(Architecture, import_module(f"ninfer_jax.models.{module}"))
