"""The peer's model file: the same weights in the format llama.cpp serves fastest on a CPU, Q8_0."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

BLOCK = 32
"""Weights in one Q8_0 block; a row must be a whole number of them."""


def requantise_q8_0(source: Path, target: Path) -> None:
    """Write ``source`` with every matrix as Q8_0 and every vector as F32, all metadata kept.

    The result appears under its name only when it is whole.
    """
    reader = gguf.GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, architecture)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != gguf.Keys.General.ARCHITECTURE:
            _copy_field(writer, field)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1 or values.shape[-1] % BLOCK:
            writer.add_tensor(tensor.name, values.astype(np.float32))
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(target)


def _copy_field(writer: gguf.GGUFWriter, field: Any) -> None:
    kind = field.types[0]
    value = field.contents()
    if field.name == gguf.Keys.General.FILE_TYPE:
        value = gguf.LlamaFileType.MOSTLY_Q8_0
    item = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
    writer.add_key_value(field.name, value, kind, sub_type=item)
