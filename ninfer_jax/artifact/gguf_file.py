"""Reading GGUF: the header, checked field by field against the file's end, and dequantised rows.

The ``gguf`` library decodes the quantised blocks. Its own reader is not used: it makes three NumPy
views for each of the ~100,000 vocabulary strings (1.7 s for SmolLM2 against 0.1 s here) and answers a
truncated file with whatever NumPy happens to raise. Format: ggml ``docs/gguf.md``, versions 2 and 3.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from ninfer_jax.artifact.mapped_file import map_bytes
from ninfer_jax.errors import CorruptModelError, UnsupportedModelError

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4

_UINT32, _STRING, _ARRAY, _UINT64 = 4, 8, 9, 10
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", _UINT32: "<I", 5: "<i", 6: "<f", 7: "<?",
    _UINT64: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip

_PLAIN: Mapping[GGMLQuantizationType, np.dtype[Any]] = {
    GGMLQuantizationType.F32: np.dtype("<f4"),
    GGMLQuantizationType.F16: np.dtype("<f2"),
    GGMLQuantizationType.BF16: np.dtype(ml_dtypes.bfloat16),
}
"""Formats that are read as they are; every other supported one goes through ``gguf.quants``."""

SUPPORTED = frozenset(
    {*_PLAIN}
    | {GGMLQuantizationType[f"Q{n}"] for n in ("4_0", "4_1", "5_0", "5_1", "8_0")}
    | {GGMLQuantizationType[f"Q{n}_K"] for n in (2, 3, 4, 5, 6)}
)


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """``shape`` is row-major (GGUF lists dimensions fastest first); ``offset`` is from the file's start."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int
    nbytes: int


class GGUFFile:
    """A memory-mapped GGUF file: ``metadata`` as plain Python values, ``tensors`` by GGUF name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = map_bytes(path)
        cursor = _Cursor(self._data.data, path)
        self._check_preamble(cursor)
        tensor_count, metadata_count = cursor.scalar(_UINT64), cursor.scalar(_UINT64)
        self.metadata: dict[str, Any] = {}
        for _ in range(metadata_count):
            key = cursor.string("metadata")
            self.metadata[key] = cursor.value(cursor.scalar(_UINT32), key)
        entries = [_tensor_entry(cursor) for _ in range(tensor_count)]
        self.tensors = self._place(entries, cursor.position)

    def _check_preamble(self, cursor: "_Cursor") -> None:
        if bytes(cursor.take(4, "magic")) != MAGIC:
            raise CorruptModelError(f"{self.path}: not a GGUF file (bad magic)")
        version = cursor.scalar(_UINT32)
        if version in (2 << 24, 3 << 24):
            raise UnsupportedModelError(f"{self.path}: big-endian GGUF is not supported")
        if version not in (2, 3):
            raise UnsupportedModelError(f"{self.path}: GGUF version {version} is not supported (2 and 3 are)")

    def _place(
        self, entries: list[tuple[str, tuple[int, ...], int, int]], header_end: int
    ) -> dict[str, GGUFTensor]:
        """Absolute byte ranges, each checked to lie inside the file."""
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise CorruptModelError(f"{self.path}: general.alignment is {alignment!r}, not a power of two")
        base = -(-header_end // alignment) * alignment
        tensors: dict[str, GGUFTensor] = {}
        for name, shape, code, offset in entries:
            if name in tensors:
                raise CorruptModelError(f"{self.path}: tensor {name} is listed twice", field=name)
            kind = _quantisation(code, name)
            block, block_bytes = GGML_QUANT_SIZES[kind]
            if not shape or 0 in shape or shape[-1] % block:
                raise CorruptModelError(
                    f"{self.path}: tensor {name} {list(shape)} is not whole {kind.name} blocks of {block}",
                    field=name,
                )
            nbytes = _product(shape) // block * block_bytes
            if base + offset + nbytes > self._data.size:
                raise CorruptModelError(
                    f"{self.path}: truncated: tensor {name} ends at byte {base + offset + nbytes}, "
                    f"the file at {self._data.size}",
                    field=name,
                )
            tensors[name] = GGUFTensor(name, shape, kind, base + offset, nbytes)
        return tensors

    def rows(self, name: str, index: slice | NDArray[np.intp]) -> NDArray[Any]:
        """The chosen rows (axis 0) of a tensor, dequantised."""
        tensor = self.tensors[name]
        raw = self._data[tensor.offset : tensor.offset + tensor.nbytes]
        rows = raw.reshape(tensor.shape[0], -1)[index]
        shape = (rows.shape[0], *tensor.shape[1:])
        plain = _PLAIN.get(tensor.type)
        if plain is not None:
            return rows.view(plain).reshape(shape)
        with np.errstate(all="ignore"):  # a non-finite block scale is reported by the finiteness check
            return np.asarray(dequantize(rows, tensor.type), np.float32).reshape(shape)


class _Cursor:
    """A position in the header that never reads past the end."""

    def __init__(self, data: memoryview, path: Path) -> None:
        self._data, self._path = data, path
        self.position = 0

    def take(self, count: int, what: str) -> memoryview:
        end = self.position + count
        if end > len(self._data):
            raise CorruptModelError(f"{self._path}: truncated in the header ({what})")
        piece = self._data[self.position : end]
        self.position = end
        return piece

    def scalar(self, code: int) -> Any:
        layout = _SCALARS[code]
        return struct.unpack(layout, self.take(struct.calcsize(layout), "a number"))[0]

    def string(self, what: str) -> str:
        text = bytes(self.take(self.scalar(_UINT64), what))
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise CorruptModelError(f"{self._path}: {what}: {text[:40]!r} is not UTF-8") from error

    def value(self, code: int, key: str) -> Any:
        if code == _STRING:
            return self.string(key)
        if code == _ARRAY:
            return self._array(key)
        if code not in _SCALARS:
            raise CorruptModelError(f"{self._path}: {key}: unknown metadata type {code}", field=key)
        return self.scalar(code)

    def _array(self, key: str) -> list[Any]:
        code, count = self.scalar(_UINT32), self.scalar(_UINT64)
        if code == _STRING:
            if count * 8 > len(self._data) - self.position:
                raise CorruptModelError(f"{self._path}: truncated in the header ({key})", field=key)
            return [self.string(key) for _ in range(count)]
        if code not in _SCALARS:
            raise UnsupportedModelError(f"{self._path}: {key}: arrays of type {code} are not supported")
        layout = np.dtype(_SCALARS[code])
        values: list[Any] = np.frombuffer(self.take(count * layout.itemsize, key), layout).tolist()
        return values


def _tensor_entry(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.string("a tensor name")
    count = cursor.scalar(_UINT32)
    if count > MAX_DIMENSIONS:
        raise CorruptModelError(
            f"tensor {name} has {count} dimensions, more than {MAX_DIMENSIONS}", field=name
        )
    dimensions = [cursor.scalar(_UINT64) for _ in range(count)]
    return name, tuple(reversed(dimensions)), cursor.scalar(_UINT32), cursor.scalar(_UINT64)


def _quantisation(code: int, name: str) -> GGMLQuantizationType:
    try:
        kind = GGMLQuantizationType(code)
    except ValueError as error:
        raise UnsupportedModelError(f"tensor {name}: unknown GGUF tensor type {code}", field=name) from error
    if kind not in SUPPORTED:
        known = ", ".join(sorted(k.name for k in SUPPORTED))
        raise UnsupportedModelError(
            f"tensor {name}: GGUF tensor type {kind.name} is not supported ({known} are)", field=name
        )
    return kind


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:  # Python integers: a forged header must not overflow
        total *= size
    return total
