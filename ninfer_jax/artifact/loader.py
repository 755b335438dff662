"""``load``: from a path to a model on the device, whatever the path holds."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
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
from ninfer_jax.artifact.tensor_names import check_names, present_groups
from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import ModelLoadError
from ninfer_jax.models.base import Architecture, ModelConfig, Weights
from ninfer_jax.models.groups import abstract_groups, group_format
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
    groups: Mapping[str, Weights] = field(default_factory=dict)
    """Trees of the groups beside the text model that were asked for."""


BeforeUpload: TypeAlias = Callable[[ModelConfig, Weights, WeightFormat, Mapping[str, Weights]], None]
"""Told the model, its ArraySpecs, the format to load in, and the ArraySpecs of the groups asked for, before
anything is put on the device; what it raises stops the load."""


def load(
    path: str | Path,
    *,
    weights: WeightFormat | None = None,
    groups: Collection[str] = (),
    progress: Progress = no_progress,
    before_upload: BeforeUpload = lambda config, specs, weights, groups: None,
) -> LoadedModel:
    """Load a ``.gguf`` file, a Hugging Face folder or a ``NAME.ninfer`` artifact.

    ``weights`` None takes what the device is best at: int8 on CPU, bfloat16 elsewhere. ``groups`` names
    what to load beside the text model (mtp, vision); the others are neither read nor put on the device.
    Raises ModelLoadError or one of its kinds, naming the tensor, member or file at fault.
    """
    checkpoint = open_checkpoint(Path(path))
    resources = checkpoint.resources  # before the weights: a bad tokenizer table is found at once
    identity = resolve_identity(checkpoint.model_id, checkpoint.config)
    module, config, specs = recognise(checkpoint.config, sum(checkpoint.formats.values()))
    group_specs = _group_specs(checkpoint, config, groups)
    if isinstance(checkpoint, Artifact):
        weight_format = weights or _default_for(checkpoint)
        before_upload(config, specs, weight_format, group_specs)
        tree, group_trees = _restore(checkpoint, specs, group_specs, weight_format)
    else:
        weight_format = weights or default_weights()
        check_names(spec_leaves((specs, group_specs)), checkpoint.tensors)
        before_upload(config, specs, weight_format, group_specs)
        dtype = activation_dtype(weight_format)
        tree = load_weights(checkpoint, specs, weight_format, dtype, progress=progress)
        group_trees = {
            name: load_weights(checkpoint, group, group_format(name, weight_format), dtype)
            for name, group in group_specs.items()
        }
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
        weight_bytes=sum(array.nbytes for array in jax.tree.leaves((tree, group_trees))),
        groups=group_trees,
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


def _group_specs(
    checkpoint: Source | Artifact, config: ModelConfig, groups: Collection[str]
) -> dict[str, Weights]:
    """ArraySpecs of the groups asked for. Raises ModelLoadError naming one that the model has not."""
    if isinstance(checkpoint, Artifact):
        stored = checkpoint.manifest.groups
        found = {name: specs for name, specs in abstract_groups(config).items() if name in stored}
    else:
        found = present_groups(config, checkpoint.tensors)
    for name in groups:
        if name not in found:
            raise ModelLoadError(f"{checkpoint.path}: the model has no {name} weights", field=name)
    return {name: found[name] for name in groups}


def _restore(
    artifact: Artifact, specs: Weights, groups: Mapping[str, Weights], weight_format: WeightFormat
) -> tuple[Weights, dict[str, Weights]]:
    from ninfer_jax.artifact.stored_weights import restore_weights  # Orbax takes half a second to import

    artifact.verify_weights(groups)
    manifest, dtype = artifact.manifest, activation_dtype(weight_format)
    tree = restore_weights(
        artifact.weights_path, specs, manifest.tensors, manifest.weight_format, weight_format, dtype
    )
    group_trees = {}
    for name, group in groups.items():
        entry = manifest.groups[name]
        group_trees[name] = restore_weights(
            artifact.group_path(name),
            group,
            entry.tensors,
            entry.weight_format,
            group_format(name, weight_format),
            dtype,
        )
    return tree, group_trees
