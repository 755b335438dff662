"""``load``: from a path to a model on the device, whatever the path holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from ninfer_jax.artifact.assemble import BF16, Progress, load_weights, no_progress
from ninfer_jax.artifact.container import Artifact, is_artifact
from ninfer_jax.artifact.gguf_file import MAGIC
from ninfer_jax.artifact.gguf_source import GGUFSource
from ninfer_jax.artifact.hf_source import HuggingFaceSource
from ninfer_jax.artifact.recognise import recognise
from ninfer_jax.artifact.source import Source, SourceKind
from ninfer_jax.artifact.stacked_experts import StackedExperts, has_single_experts
from ninfer_jax.artifact.tensor_names import check_names
from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import ModelLoadError
from ninfer_jax.models.base import Architecture, ModelConfig, Weights
from ninfer_jax.models.identities import resolve_identity
from ninfer_jax.models.weights import num_parameters, spec_leaves


@dataclass(frozen=True, slots=True)
class Identity:
    """What the model is called and what it is. ``model_id`` is the checkpoint's own name: what a server
    advertises unless it is told another."""

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
    resources: Mapping[str, bytes]
    """Tokenizer, chat template and their like by file name, for the text layer."""
    source: SourceDescription
    num_parameters: int
    weight_bytes: int


BeforeUpload: TypeAlias = Callable[[ModelConfig, Weights, WeightFormat], None]
"""Told the model, its ArraySpecs and the format to load in, before anything is put on the device; what it
raises stops the load."""


def load(
    path: str | Path,
    *,
    weights: WeightFormat | None = None,
    progress: Progress = no_progress,
    before_upload: BeforeUpload = lambda config, specs, weights: None,
) -> LoadedModel:
    """Load a ``.gguf`` file, a Hugging Face folder or a ``NAME.ninfer`` artifact.

    ``weights`` None takes what the device is best at: int8 on CPU, bfloat16 elsewhere.
    Raises ModelLoadError or one of its kinds, naming the tensor, member or file at fault.
    """
    checkpoint = open_checkpoint(Path(path))
    resources = checkpoint.resources  # before the weights: a bad tokenizer table is found at once
    identity = resolve_identity(checkpoint.model_id, checkpoint.config)
    module, config, specs = recognise(checkpoint.config, sum(checkpoint.formats.values()))
    if isinstance(checkpoint, Artifact):
        weight_format = weights or _default_for(checkpoint)
        before_upload(config, specs, weight_format)
        tree = _restore(checkpoint, specs, weight_format)
    else:
        weight_format = weights or default_weights()
        check_names(spec_leaves(specs), checkpoint.tensors)
        before_upload(config, specs, weight_format)
        tree = load_weights(
            checkpoint, specs, weight_format, activation_dtype(weight_format), progress=progress
        )
    return LoadedModel(
        identity=Identity(identity, config.model_type),
        architecture=module,
        config=config,
        hf_config=checkpoint.config,
        weights=tree,
        weight_format=weight_format,
        resources=resources,
        source=SourceDescription(checkpoint.kind, str(checkpoint.path), checkpoint.formats),
        num_parameters=num_parameters(specs),
        weight_bytes=sum(array.nbytes for array in jax.tree.leaves(tree)),
    )


def open_checkpoint(path: Path) -> Source | Artifact:
    """What is at ``path``, opened and checked as far as its headers go."""
    try:
        return _open_folder(path) if path.is_dir() else _open_file(path)
    except OSError as error:
        raise ModelLoadError(f"{error.filename or path}: {error.strerror}") from error


def _open_folder(path: Path) -> Source | Artifact:
    if is_artifact(path):
        return Artifact(path)
    if (path / "config.json").is_file():
        source = HuggingFaceSource(path)
        return StackedExperts(source) if has_single_experts(source.tensors) else source
    files = sorted(file.name for file in path.glob("*.gguf"))
    hint = f"; name one of its files: {', '.join(files)}" if files else ""
    raise ModelLoadError(f"{path}: neither a config.json nor a ninfer.json is in this folder{hint}")


def _open_file(path: Path) -> Source:
    if not path.exists():
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


def _default_for(artifact: Artifact) -> WeightFormat:
    """Stored int8 stays int8; anything wider becomes what the device is best at."""
    return "int8" if artifact.manifest.weight_format == "int8" else default_weights()


def _restore(artifact: Artifact, specs: Weights, weight_format: WeightFormat) -> Weights:
    from ninfer_jax.artifact.stored_weights import restore_weights  # Orbax takes half a second to import

    artifact.verify_weights()
    return restore_weights(
        artifact.weights_path,
        specs,
        artifact.manifest.tensors,
        artifact.manifest.weight_format,
        weight_format,
        activation_dtype(weight_format),
    )
