"""From a source's tensors to a model's weight tree, leaf by leaf, a few rows at a time.

A leaf's source tensors are checked by name and shape, read in blocks of rows that fit a core's cache,
checked for non-finite values, cast or quantised into the leaf's host array, and only then put on the
device; so beyond the weights themselves a load needs one leaf of memory a thread.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import jax
import ml_dtypes
import numpy as np
from jax.typing import DTypeLike
from numpy.typing import NDArray

from ninfer_jax.artifact.source import Source
from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import CorruptModelError
from ninfer_jax.kernels.linear import QuantArray, quantise_rows
from ninfer_jax.models.base import ArraySpec, Weights
from ninfer_jax.models.weights import is_spec, leaf_dtype, to_layout

BLOCK_ELEMENTS = 1 << 18
"""Elements handled at once: 1 MiB of float32."""

MAX_THREADS = 8

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (elements done, elements in all), from any thread."""

HostLeaf: TypeAlias = "NDArray[Any] | QuantArray"
"""A leaf in host memory: a NumPy array, or a QuantArray of two."""

BF16 = np.dtype(ml_dtypes.bfloat16)


def no_progress(done: int, total: int) -> None:
    """For callers that do not watch."""


def host_leaf(
    source: Source, spec: ArraySpec, weight_format: WeightFormat, activation_dtype: DTypeLike
) -> HostLeaf:
    """One leaf in host memory, in the format that the model computes with."""
    blocks = _blocks(source, spec)
    dtype = leaf_dtype(spec, weight_format, activation_dtype)
    return _quantise(spec, blocks) if dtype == np.int8 else _cast(spec, blocks, dtype)


def load_weights(
    source: Source,
    specs: Weights,
    weight_format: WeightFormat,
    activation_dtype: DTypeLike,
    *,
    place: Callable[[HostLeaf], Any] = jax.device_put,
    progress: Progress = no_progress,
) -> Weights:
    """The whole tree. ``place`` puts a host leaf where it shall live (the default device).

    Raises CorruptModelError naming the tensor. Call ``tensor_names.check_names`` first.
    """
    leaves, structure = jax.tree.flatten(specs, is_leaf=is_spec)
    total = sum(math.prod(spec.shape) for spec in leaves)
    done = 0

    def load(spec: ArraySpec) -> Any:
        return place(host_leaf(source, spec, weight_format, activation_dtype))

    placed = []
    threads = ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1), "load")
    try:
        for spec, leaf in zip(leaves, threads.map(load, leaves), strict=True):
            placed.append(leaf)
            done += math.prod(spec.shape)
            progress(done, total)
    finally:
        threads.shutdown(cancel_futures=True)
    return jax.tree.unflatten(structure, placed)


def _blocks(source: Source, spec: ArraySpec) -> Iterator[tuple[int, NDArray[Any]]]:
    """(first row, rows) of the sources, concatenated on axis 0 in their own layout; finite."""
    row = 0
    for name, shape in zip(spec.sources, spec.source_shapes, strict=True):
        step = max(1, BLOCK_ELEMENTS // max(1, math.prod(shape[1:])))
        for start in range(0, shape[0], step):
            block = source.read(name, start, min(start + step, shape[0]))
            if not _is_finite(block):
                raise CorruptModelError(f"tensor {name} holds a value that is not finite", field=name)
            yield row + start, block
        row += shape[0]


def _is_finite(block: NDArray[Any]) -> bool:
    if block.dtype == BF16:  # exponent bits all set: infinity or NaN
        return not bool(((block.view(np.uint16) & 0x7F80) == 0x7F80).any())
    return bool(np.isfinite(block).all())


def _cast(spec: ArraySpec, blocks: Iterable[tuple[int, NDArray[Any]]], dtype: np.dtype[Any]) -> NDArray[Any]:
    stored = np.empty(_stored_shape(spec), dtype)
    for row, block in blocks:
        stored[row : row + block.shape[0]] = block
    return to_layout(spec, stored)


def _stored_shape(spec: ArraySpec) -> tuple[int, ...]:
    return (sum(shape[0] for shape in spec.source_shapes), *spec.source_shapes[0][1:])


def _quantise(spec: ArraySpec, blocks: Iterable[tuple[int, NDArray[Any]]]) -> QuantArray:
    values = np.empty(spec.shape, np.int8)
    scale = np.empty(spec.shape[:-1], np.float32)
    for row, block in blocks:
        rows = slice(row, row + block.shape[0])
        values[rows], scale[rows] = quantise_rows(block)
    return QuantArray(values, scale)  # type: ignore[arg-type]  # NumPy until it is placed
