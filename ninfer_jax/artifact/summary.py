"""What a model file or folder is, from its headers alone: no weight is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninfer_jax.artifact.container import Artifact
from ninfer_jax.artifact.loader import open_checkpoint
from ninfer_jax.artifact.recognise import recognise
from ninfer_jax.artifact.source import SourceKind
from ninfer_jax.artifact.tensor_names import check_names
from ninfer_jax.models.base import ModelConfig
from ninfer_jax.models.identities import resolve_identity
from ninfer_jax.models.weights import num_parameters, spec_leaves


@dataclass(frozen=True, slots=True)
class Summary:
    """``formats`` counts tensors by encoding; ``weight_bytes`` is what they take on disk."""

    path: str
    kind: SourceKind
    model_id: str
    config: ModelConfig
    num_parameters: int
    formats: Mapping[str, int]
    weight_bytes: int
    resources: Mapping[str, bytes]
    left_aside: Mapping[str, int]
    """Tensors of optional groups that the model is served without, by group."""
    manifest: Mapping[str, Any]
    """Facts that only an artifact has: container version, provenance. Empty for other kinds."""


def summarise(path: Path, *, verify: bool = False) -> Summary:
    """Raises ModelLoadError for what ``load`` would refuse without reading weights; with ``verify`` the
    weight files of an artifact are hashed too."""
    checkpoint = open_checkpoint(path)
    _, config, specs = recognise(checkpoint.config, sum(checkpoint.formats.values()))
    manifest: dict[str, Any] = {}
    left_aside: dict[str, int] = {}
    if isinstance(checkpoint, Artifact):
        weight_bytes = checkpoint.tensor_bytes
        manifest = {"created_by": checkpoint.manifest.created_by, "source": dict(checkpoint.manifest.source)}
        if verify:
            checkpoint.verify_weights()
    else:
        left_aside = check_names(spec_leaves(specs), checkpoint.tensors)
        weight_bytes = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
    return Summary(
        path=str(path),
        kind=checkpoint.kind,
        model_id=resolve_identity(checkpoint.model_id, checkpoint.config),
        config=config,
        num_parameters=num_parameters(specs),
        formats=checkpoint.formats,
        weight_bytes=weight_bytes,
        resources=checkpoint.resources,
        left_aside=left_aside,
        manifest=manifest,
    )
