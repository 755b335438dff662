"""Checkpoints that store every expert by itself, seen as the stacked tensors of the official layout.

``experts.E.gate_proj.weight`` and ``up_proj`` ``[I, H]`` become ``experts.gate_up_proj [E, 2I, H]``, gate
rows first; ``down_proj`` ``[H, I]`` becomes ``experts.down_proj [E, H, I]``. Quantised repositories publish
the former because they scale each expert's matrices on their own.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_jax.artifact.source import Source, SourceKind, TensorInfo, count_formats
from ninfer_jax.errors import CorruptModelError

_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")
_STACKED = re.compile(r"(.+\.experts)\.(gate_up|down)_proj")


def has_single_experts(tensors: Mapping[str, TensorInfo]) -> bool:
    return any(_EXPERT.fullmatch(name) for name in tensors)


class StackedExperts:
    """A view of a source. Everything but the experts passes through."""

    def __init__(self, source: Source) -> None:
        self._source = source
        counts: dict[str, int] = {}
        for name in source.tensors:
            if match := _EXPERT.fullmatch(name):
                counts[match[1]] = max(counts.get(match[1], 0), int(match[2]) + 1)
        self._counts = counts

    @property
    def kind(self) -> SourceKind:
        return self._source.kind

    @property
    def path(self) -> Path:
        return self._source.path

    @property
    def model_id(self) -> str:
        return self._source.model_id

    @property
    def config(self) -> Mapping[str, Any]:
        return self._source.config

    @property
    def resources(self) -> Mapping[str, bytes]:
        return self._source.resources

    @property
    def formats(self) -> Mapping[str, int]:
        return count_formats(self._source.tensors)

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Raises CorruptModelError naming an expert's tensor that is missing or unlike the first's."""
        stored = self._source.tensors
        tensors = {name: info for name, info in stored.items() if not _EXPERT.fullmatch(name)}
        for prefix, count in self._counts.items():
            for stacked, parts in (("gate_up", ("gate", "up")), ("down", ("down",))):
                infos = [self._info(prefix, expert, part) for expert in range(count) for part in parts]
                rows, columns = infos[0].shape
                shape = (count, rows * len(parts), columns)
                nbytes = sum(info.nbytes for info in infos)
                tensors[f"{prefix}.{stacked}_proj"] = TensorInfo(shape, infos[0].format, nbytes)
        return tensors

    def _info(self, prefix: str, expert: int, part: str) -> TensorInfo:
        name, first = f"{prefix}.{expert}.{part}_proj.weight", f"{prefix}.0.{part}_proj.weight"
        for needed in (first, name):
            if needed not in self._source.tensors:
                raise CorruptModelError(f"tensor {needed} is missing", field=needed)
        info, shape = self._source.tensors[name], self._source.tensors[first].shape
        if info.shape != shape or len(shape) != 2:
            raise CorruptModelError(
                f"tensor {name} has shape {list(info.shape)}, expected {list(shape)}", field=name
            )
        return info

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Experts ``[start, stop)`` of a stacked tensor; rows of any other."""
        match = _STACKED.fullmatch(name)
        if match is None or match[1] not in self._counts:
            return self._source.read(name, start, stop)
        parts = ("gate", "up") if match[2] == "gate_up" else ("down",)
        return np.stack([self._expert(match[1], expert, parts) for expert in range(start, stop)])

    def _expert(self, prefix: str, expert: int, parts: tuple[str, ...]) -> NDArray[Any]:
        names = [f"{prefix}.{expert}.{part}_proj.weight" for part in parts]
        return np.concatenate(
            [self._source.read(name, 0, self._source.tensors[name].shape[0]) for name in names]
        )
