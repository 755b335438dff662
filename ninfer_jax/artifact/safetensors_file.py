"""Reading safetensors: the JSON header, checked against the file's end, and memory-mapped rows.

The safetensors library's NumPy side has no bfloat16 and no float8, and the format is one JSON object;
so the header is read here. Format: https://github.com/huggingface/safetensors (README, "Format").
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ninfer_jax.artifact.mapped_file import map_bytes
from ninfer_jax.errors import CorruptModelError, UnsupportedModelError

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """``offset`` is from the file's start."""

    shape: tuple[int, ...]
    dtype: str
    offset: int
    nbytes: int


class SafetensorsFile:
    """One memory-mapped ``.safetensors`` file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = map_bytes(path)
        header, base = self._header()
        self.tensors = {
            name: self._entry(name, entry, base) for name, entry in header.items() if name != "__metadata__"
        }

    def _header(self) -> tuple[Mapping[str, Any], int]:
        if self._data.size < 8:
            raise CorruptModelError(f"{self.path}: truncated in the header")
        size = int(self._data[:8].view("<u8")[0])
        if size > MAX_HEADER_BYTES or 8 + size > self._data.size:
            raise CorruptModelError(f"{self.path}: truncated in the header, or not a safetensors file")
        try:
            header = json.loads(self._data[8 : 8 + size].tobytes())
        except ValueError as error:
            raise CorruptModelError(f"{self.path}: the header is not JSON: {error}") from error
        if not isinstance(header, dict):
            raise CorruptModelError(f"{self.path}: the header is not a JSON object")
        return header, 8 + size

    def _entry(self, name: str, entry: Any, base: int) -> StoredTensor:
        try:
            shape, dtype = tuple(map(int, entry["shape"])), str(entry["dtype"])
            start, stop = map(int, entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptModelError(f"{self.path}: bad header entry of {name}", field=name) from error
        if dtype not in DTYPES:  # refused when it is read: an integer buffer nobody uses does no harm
            return StoredTensor(shape, dtype, base + start, stop - start)
        nbytes = math.prod(shape) * DTYPES[dtype].itemsize
        ends = base + stop
        if start < 0 or min(shape, default=1) < 0 or stop - start != nbytes:
            raise CorruptModelError(
                f"{self.path}: {name} {list(shape)} {dtype} is {nbytes} bytes, its range {stop - start}",
                field=name,
            )
        if ends > self._data.size:
            raise CorruptModelError(
                f"{self.path}: truncated: {name} ends at byte {ends}, the file at {self._data.size}",
                field=name,
            )
        return StoredTensor(shape, dtype, base + start, nbytes)

    def rows(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Rows ``[start, stop)`` of axis 0, in the stored dtype, not copied."""
        tensor = self.tensors[name]
        if tensor.dtype not in DTYPES:
            raise UnsupportedModelError(
                f"{self.path}: tensor {name} has dtype {tensor.dtype} ({', '.join(DTYPES)} are supported)",
                field=name,
            )
        data = self._data[tensor.offset : tensor.offset + tensor.nbytes]
        whole = data.view(DTYPES[tensor.dtype]).reshape(tensor.shape)
        return whole[start:stop]
