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
from ninfer_jax.models.groups import GROUP_PREFIXES
from ninfer_jax.models.identities import resolve_identity
from ninfer_jax.models.weights import num_parameters, spec_leaves


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """Tensors of one group as they are stored."""

    num_tensors: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """``formats`` counts tensors by encoding; ``weight_bytes`` is what the text model's take on disk."""

    path: str
    kind: SourceKind
    model_id: str
    config: ModelConfig
    num_parameters: int
    formats: Mapping[str, int]
    weight_bytes: int
    resources: Mapping[str, bytes]
    groups: Mapping[str, GroupSummary]
    """What is there beside the text model, which is served without it."""
    manifest: Mapping[str, Any]
    """Facts that only an artifact has: container version, provenance. Empty for other kinds."""


def summarise(path: Path, *, verify: bool = False) -> Summary:
    """Raises ModelLoadError for what ``load`` would refuse without reading weights; with ``verify`` the
    weight files of an artifact are hashed too."""
    checkpoint = open_checkpoint(path)
    _, config, specs = recognise(checkpoint.config, sum(checkpoint.formats.values()))
    manifest: dict[str, Any] = {}
    groups: dict[str, GroupSummary] = {}
    if isinstance(checkpoint, Artifact):
        weight_bytes = checkpoint.tensor_bytes
        manifest = {"created_by": checkpoint.manifest.created_by, "source": dict(checkpoint.manifest.source)}
        groups = {
            name: GroupSummary(len(entry.tensors), entry.nbytes)
            for name, entry in checkpoint.manifest.groups.items()
        }
        if verify:
            checkpoint.verify_weights(groups)
    else:
        stored = checkpoint.tensors
        for name in check_names(spec_leaves(specs), stored):
            sizes = [info.nbytes for key, info in stored.items() if key.startswith(GROUP_PREFIXES[name])]
            groups[name] = GroupSummary(len(sizes), sum(sizes))
        weight_bytes = sum(info.nbytes for info in stored.values()) - sum(g.nbytes for g in groups.values())
    return Summary(
        path=str(path),
        kind=checkpoint.kind,
        model_id=resolve_identity(checkpoint.model_id, checkpoint.config),
        config=config,
        num_parameters=num_parameters(specs),
        formats=checkpoint.formats,
        weight_bytes=weight_bytes,
        resources=checkpoint.resources,
        groups=groups,
        manifest=manifest,
    )
