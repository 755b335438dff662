"""The first event of a server's log: what it serves, with what capacities, on what, started how."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ninfer_jax import __version__
from ninfer_jax.observe.request_log import redact
from ninfer_jax.types import ModelInfo

PACKAGES = ("jax", "jaxlib", "numpy", "sanic", "tokenizers")


def server_start(
    info: ModelInfo,
    *,
    artifact: Path,
    weights: str,
    options: Mapping[str, Any],
    stats: Mapping[str, Any],
    device: Mapping[str, Any],
    memory: Mapping[str, Any] | None = None,
    argv: Sequence[str] = sys.argv,
) -> dict[str, Any]:
    """The ``server_start`` event's own members. ``options`` are the resolved flags without secrets,
    ``stats`` the ready engine's, ``device`` names the accelerator, ``memory`` is in bytes."""
    return {
        "model": {
            "model_id": info.model_id,
            "architecture": info.architecture,
            "num_parameters": info.num_parameters,
            "vocab_size": info.vocab_size,
            "has_vision": info.has_vision,
            "artifact": str(artifact),
            "weights": weights,
        },
        "capacity": dict(stats.get("capacity", {})),
        "memory": None if memory is None else dict(memory),
        "options": dict(options),
        "environment": {
            "version": __version__,
            "python": platform.python_version(),
            "system": platform.platform(),
            "cores": len(os.sched_getaffinity(0)),
            "packages": {name: _version(name) for name in PACKAGES},
            "device": dict(device),
        },
        "argv": redact(argv),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
