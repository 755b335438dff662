"""The quantised leaf: int8 values with one scale per output channel."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class QuantArray:
    """Matrices ``[..., out, in]`` held as ``values * scale[..., None]``: values int8 in -127..127, scale
    f32 ``[..., out]``. A pytree of two arrays, so it passes through jit, sharding and checkpoints."""

    values: jax.Array
    scale: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.scale.nbytes)


Matrix = jax.Array | QuantArray
"""What a weight of role ``matmul`` or ``embedding`` may be."""


def stored_values(weight: Matrix) -> jax.Array:
    """The array that a product reads: int8 where ``weight`` is quantised."""
    return weight.values if isinstance(weight, QuantArray) else weight


def values_and_scale(weight: Matrix) -> tuple[jax.Array, jax.Array]:
    """``weight`` as values and a float32 scale of every output, which is one where it is not quantised."""
    if isinstance(weight, QuantArray):
        return weight.values, weight.scale
    return weight, jnp.ones(weight.shape[:-1], jnp.float32)


def quantise_rows(matrix: ArrayLike) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric round-to-nearest int8 of each row of ``[..., out, in]``, on the host.

    Returns (values int8 ``[..., out, in]``, scale f32 ``[..., out]``); an all-zero row gets scale 0.
    """
    rows = np.asarray(matrix, dtype=np.float32)
    if rows.ndim < 2:
        raise ValueError(f"only matrices are quantised per row, got shape {rows.shape}")
    scale = np.abs(rows).max(axis=-1) / np.float32(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    return np.rint(rows * inverse[..., None]).astype(np.int8), scale


def quantise(matrix: ArrayLike) -> QuantArray:
    """``quantise_rows`` as a leaf on the default device."""
    values, scale = quantise_rows(matrix)
    return QuantArray(jnp.asarray(values), jnp.asarray(scale))
