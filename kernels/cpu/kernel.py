"""A kernel that XLA:CPU calls by name: what its machine code is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

ELEMENTS: dict[str, np.dtype[Any]] = {
    "int8": np.dtype(np.int8),
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(np.uint16),
}
"""Weight formats, and what compiled code sees of them."""


class Buffer(NamedTuple):
    """An operand's or result's rank, and element type as compiled code sees it; sizes come with each call."""

    dtype: np.dtype[Any]
    ndim: int


def floats(ndim: int) -> Buffer:
    """float32."""
    return Buffer(np.dtype(np.float32), ndim)


def integers(ndim: int) -> Buffer:
    """int32."""
    return Buffer(np.dtype(np.int32), ndim)


def values(element: str, ndim: int) -> Buffer:
    """Stored values of a weight format."""
    return Buffer(ELEMENTS[element], ndim)


@dataclass(frozen=True)
class Kernel:
    """One custom call. ``name`` is its own among all kernels.

    ``code`` names a function as ``module:function``, called as ``function(*parameters)`` only where the
    machine code is made, which returns :class:`~ninfer_jax.kernels.cpu.tasks.Functions`. These see a call's
    operands and results as the fields of one named tuple, C-contiguous array views under these names.
    """

    name: str
    code: str
    operands: Mapping[str, Buffer]
    results: Mapping[str, Buffer]
    parameters: Sequence[str | int | bool] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Results that take an operand's memory and contents, as ``{result: operand}``."""
