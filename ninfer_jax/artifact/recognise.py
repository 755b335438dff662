"""From a checkpoint's ``config.json`` to the model that reads it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ninfer_jax.errors import CorruptModelError
from ninfer_jax.models.base import Architecture, ModelConfig, Weights
from ninfer_jax.models.registry import architecture


class Recognised(NamedTuple):
    """The architecture module, its parsed configuration, and the tree of its ArraySpecs."""

    architecture: Architecture
    config: ModelConfig
    specs: Weights


def recognise(config: Mapping[str, Any], num_tensors: int | None = None) -> Recognised:
    """Raises UnsupportedModelError or CorruptModelError naming the member at fault.

    ``num_tensors`` is how many tensors the checkpoint holds. A damaged configuration that speaks of a
    billion layers is refused by it before anything of that size is built.
    """
    module = architecture(config)
    section = config.get("text_config")
    layers = (section if isinstance(section, dict) else config).get("num_hidden_layers")
    if num_tensors is not None and isinstance(layers, int) and layers > num_tensors:
        raise CorruptModelError(
            f"the configuration has {layers} layers, the checkpoint only {num_tensors} tensors",
            field="num_hidden_layers",
        )
    parsed = module.parse_config(config)
    return Recognised(module, parsed, module.abstract(parsed))
