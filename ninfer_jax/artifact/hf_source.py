"""A Hugging Face checkpoint folder: ``config.json``, safetensors (single or sharded), frontend files.

Block-scaled FP8 checkpoints (``NAME.weight`` in e4m3 with ``NAME.weight_scale_inv`` holding one factor
for each 128 x 128 block, as DeepSeek-V3 and the Qwen FP8 repositories publish them) are dequantised as
their rows are read.
"""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_jax.artifact.resources import RESOURCES, TOKENIZERS
from ninfer_jax.artifact.safetensors_file import SafetensorsFile
from ninfer_jax.artifact.source import SourceKind, TensorInfo, count_formats
from ninfer_jax.errors import CorruptModelError, ModelLoadError, UnsupportedModelError

INDEX = "model.safetensors.index.json"
FP8 = "F8_E4M3"
SCALE_SUFFIX = "_scale_inv"
SNAPSHOT = re.compile(r"models--(?:[^/]+--)?([^/]+)/snapshots/[^/]+$")


class HuggingFaceSource:
    """One checkpoint folder."""

    kind: SourceKind = "huggingface"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stored_config = read_json(path / "config.json")
        self._block = _fp8_block(self._stored_config)
        if not any((path / name).is_file() for name in TOKENIZERS):
            raise CorruptModelError(f"{path}: no tokenizer ({' or '.join(TOKENIZERS)})", field="tokenizer")
        self._files = _open_shards(path)
        self._check_scales()

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """``config.json`` without the FP8 section, which ``read`` takes care of."""
        if self._block is None:
            return self._stored_config
        return {key: value for key, value in self._stored_config.items() if key != "quantization_config"}

    @property
    def model_id(self) -> str:
        path = self.path.resolve()
        cached = SNAPSHOT.search(path.as_posix())
        return cached[1] if cached else path.name

    @cached_property
    def resources(self) -> Mapping[str, bytes]:
        found = {name: self.path / name for name in RESOURCES if (self.path / name).is_file()}
        return {name: file.read_bytes() for name, file in found.items()}

    @cached_property
    def tensors(self) -> Mapping[str, TensorInfo]:
        stored = {name: file.tensors[name] for name, file in self._files.items()}
        return {
            name: TensorInfo(tensor.shape, tensor.dtype, tensor.nbytes)
            for name, tensor in stored.items()
            if not (name.endswith(SCALE_SUFFIX) and name.removesuffix(SCALE_SUFFIX) in stored)
        }

    @property
    def formats(self) -> Mapping[str, int]:
        return count_formats(self.tensors)

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        rows = self._files[name].rows(name, start, stop)
        if self.tensors[name].format != FP8:
            return rows
        return rows.astype(np.float32) * self._scales(name, start, stop)

    def _check_scales(self) -> None:
        """Every FP8 tensor has its scales in the right shape, and nothing else has any: before a weight is
        read, so that nothing is on the device when a checkpoint is refused."""
        for name, file in self._files.items():
            scale_name, dtype = name + SCALE_SUFFIX, file.tensors[name].dtype
            if dtype != FP8:
                if scale_name in self._files:
                    raise CorruptModelError(
                        f"{self.path}: tensor {scale_name} is there, but {name} is {dtype}", field=scale_name
                    )
                continue
            grid = self._grid(name)
            if scale_name not in self._files:
                raise CorruptModelError(f"{self.path}: tensor {scale_name} is missing", field=scale_name)
            shape = self._files[scale_name].tensors[scale_name].shape
            if shape != grid:
                raise CorruptModelError(
                    f"{self.path}: tensor {scale_name} has shape {list(shape)}, expected {list(grid)}",
                    field=scale_name,
                )

    def _grid(self, name: str) -> tuple[int, ...]:
        """The shape of an FP8 tensor's scales; ``[..., out, in]`` has blocks on the last two axes."""
        shape = self._files[name].tensors[name].shape
        if self._block is None:
            raise UnsupportedModelError(
                f"{self.path}: tensor {name} is FP8, but config.json has no block-scaled quantization_config",
                field=name,
            )
        if len(shape) < 2:
            raise UnsupportedModelError(
                f"{self.path}: tensor {name} is FP8 and has no two axes to scale in blocks", field=name
            )
        blocks = (-(-size // block) for size, block in zip(shape[-2:], self._block, strict=True))
        return (*shape[:-2], *blocks)

    def _scales(self, name: str, start: int, stop: int) -> NDArray[np.float32]:
        """One factor for each element of these rows."""
        assert self._block is not None
        scale_name, shape = name + SCALE_SUFFIX, self.tensors[name].shape
        file, (out_block, in_block) = self._files[scale_name], self._block
        if len(shape) == 2:
            blocks = np.arange(start, stop) // out_block
            scales = file.rows(scale_name, 0, self._grid(name)[0]).astype(np.float32)[blocks]
        else:
            scales = file.rows(scale_name, start, stop).astype(np.float32)
            scales = np.repeat(scales, out_block, axis=-2)[..., : shape[-2], :]
        return np.repeat(scales, in_block, axis=-1)[..., : shape[-1]]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CorruptModelError naming the file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CorruptModelError(f"{path} is missing", field=path.name) from error
    except ValueError as error:
        raise CorruptModelError(f"{path} is not JSON: {error}", field=path.name) from error
    if not isinstance(value, dict):
        raise CorruptModelError(f"{path} is not a JSON object", field=path.name)
    return value


def _open_shards(path: Path) -> dict[str, SafetensorsFile]:
    """The file that holds each tensor."""
    if not (path / INDEX).is_file():
        single = path / "model.safetensors"
        if not single.is_file():
            raise ModelLoadError(f"{path}: neither {single.name} nor {INDEX} is there", field=single.name)
        file = SafetensorsFile(single)
        return dict.fromkeys(file.tensors, file)
    weight_map = read_json(path / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CorruptModelError(f"{path / INDEX} has no weight_map", field="weight_map")
    shards = {}
    for shard in sorted(set(weight_map.values())):
        if Path(shard).name != shard or not (path / shard).is_file():
            raise CorruptModelError(f"{path}: shard {shard} is missing", field=shard)
        shards[shard] = SafetensorsFile(path / shard)
    for name, shard in weight_map.items():
        if name not in shards[shard].tensors:
            raise CorruptModelError(f"{path}: tensor {name} is not in {shard}", field=name)
    for shard, file in shards.items():
        unlisted = next((name for name in file.tensors if weight_map.get(name) != shard), None)
        if unlisted is not None:
            raise CorruptModelError(f"{path}: {INDEX} does not list {unlisted} in {shard}", field=unlisted)
    return {name: shards[shard] for name, shard in weight_map.items()}


def _fp8_block(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """``(out, in)`` sizes of a scale block; None where weights are not quantised."""
    section = config.get("quantization_config")
    if section is None:
        return None
    method = section.get("quant_method") if isinstance(section, dict) else section
    if method != "fp8":
        raise UnsupportedModelError(
            f"quantization_config.quant_method {method!r} is not supported (only 'fp8')",
            field="quantization_config.quant_method",
        )
    block = section.get("weight_block_size")
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block)):
        raise UnsupportedModelError(
            f"quantization_config.weight_block_size {block!r} is not supported (two sizes are)",
            field="quantization_config.weight_block_size",
        )
    return block[0], block[1]
