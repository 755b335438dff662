"""``load``: from a path to a model on the device, whatever the path holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ninfer_jax.artifact.assemble import BF16, Progress, check_names, load_weights, no_progress
from ninfer_jax.artifact.frontend import Frontend, GenerationDefaults
from ninfer_jax.artifact.gguf_file import MAGIC
from ninfer_jax.artifact.gguf_source import GGUFSource
from ninfer_jax.artifact.hf_source import HuggingFaceSource
from ninfer_jax.artifact.source import Source, SourceKind
from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import ModelLoadError
from ninfer_jax.models.base import Architecture, ModelConfig, Weights
from ninfer_jax.models.registry import architecture
from ninfer_jax.models.weights import num_parameters, spec_leaves


@dataclass(frozen=True, slots=True)
class Identity:
    """What the model is called and what it is. ``model_id`` is the name that a server advertises."""

    model_id: str
    model_type: str


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """Where a model came from. ``formats`` counts stored tensors by the source's encoding."""

    kind: SourceKind
    path: str
    formats: Mapping[str, int]


@dataclass(frozen=True)
class LoadedModel:
    """A model on the device, with all that serving it needs beside the engine."""

    identity: Identity
    architecture: Architecture
    config: ModelConfig
    hf_config: Mapping[str, Any]
    weights: Weights
    weight_format: WeightFormat
    frontend: Frontend
    generation: GenerationDefaults
    source: SourceDescription
    num_parameters: int
    weight_bytes: int


def load(
    path: str | Path,
    *,
    weights: WeightFormat | None = None,
    model_id: str | None = None,
    progress: Progress = no_progress,
) -> LoadedModel:
    """Load a ``.gguf`` file, a Hugging Face folder or a ``NAME.ninfer`` artifact.

    ``weights`` None takes what the device is best at: int8 on CPU, bfloat16 elsewhere.
    Raises ModelLoadError or one of its kinds, naming the tensor, member or file at fault.
    """
    source = open_source(Path(path))
    module = architecture(source.config)
    config = module.parse_config(source.config)
    specs = module.abstract(config)
    check_names(spec_leaves(specs), source.tensors)
    frontend = Frontend(source.resources)
    generation = frontend.generation(source.config)
    weight_format = weights or default_weights()
    tree = load_weights(source, specs, weight_format, activation_dtype(weight_format), progress=progress)
    return LoadedModel(
        identity=Identity(model_id or source.model_id, config.model_type),
        architecture=module,
        config=config,
        hf_config=source.config,
        weights=tree,
        weight_format=weight_format,
        frontend=frontend,
        generation=generation,
        source=describe(source),
        num_parameters=num_parameters(specs),
        weight_bytes=sum(array.nbytes for array in jax.tree.leaves(tree)),
    )


def open_source(path: Path) -> Source:
    """The checkpoint at ``path``, opened and checked as far as its headers go."""
    if path.is_dir():
        if (path / "config.json").is_file():
            return HuggingFaceSource(path)
        raise ModelLoadError(f"{path}: neither a config.json nor a ninfer.json is in this folder")
    if not path.is_file():
        raise ModelLoadError(f"{path}: no such file or folder")
    with path.open("rb") as file:
        if path.suffix == ".gguf" or file.read(4) == MAGIC:
            return GGUFSource(path)
    raise ModelLoadError(f"{path}: not a .gguf file, a Hugging Face folder or a .ninfer artifact")


def default_weights() -> WeightFormat:
    return "int8" if jax.default_backend() == "cpu" else "bf16"


def activation_dtype(weight_format: WeightFormat) -> np.dtype[Any]:
    """Float32 on CPU, where bfloat16 arithmetic is slow, and for float32 weights; else bfloat16."""
    wide = weight_format == "f32" or jax.default_backend() == "cpu"
    return np.dtype(np.float32) if wide else BF16


def describe(source: Source) -> SourceDescription:
    formats: dict[str, int] = {}
    for tensor in source.tensors.values():
        formats[tensor.format] = formats.get(tensor.format, 0) + 1
    return SourceDescription(source.kind, str(source.path), formats)
