"""Blocks that several architectures share. Activations are ``[B, T, ...]``; statistics are float32."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ninfer_jax.kernels.cpu import materialise
from ninfer_jax.kernels.linear import Matrix, linear


def head_scores(hidden: jax.Array, head: Matrix | None, embedding: Matrix) -> jax.Array:
    """``[..., H] -> [..., V]`` float32, by the embedding where the head is tied to it."""
    with jax.named_scope("head"):
        return linear(hidden, embedding if head is None else head).astype(jnp.float32)


@dataclass(frozen=True)
class LinearScaling:
    """Every frequency divided by ``factor``."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's scaling: long wavelengths divided by ``factor``, short ones kept, a ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of the first ``rotary_dim`` of a head's dimensions."""

    rotary_dim: int
    theta: float
    scaling: LinearScaling | Llama3Scaling | None = None

    def inverse_frequencies(self) -> NDArray[np.float32]:
        """``[rotary_dim / 2]`` radians a position."""
        exponents = np.arange(0, self.rotary_dim, 2, dtype=np.float32) / np.float32(self.rotary_dim)
        frequencies = (1.0 / np.float32(self.theta) ** exponents).astype(np.float32)
        match self.scaling:
            case None:
                return frequencies
            case LinearScaling(factor):
                return (frequencies / np.float32(factor)).astype(np.float32)
            case Llama3Scaling(factor, low, high, original):
                wavelengths = 2 * math.pi / frequencies
                ramp = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
                return ((1 - ramp) * frequencies / factor + ramp * frequencies).astype(np.float32)


def rope_tables(rope: Rope, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """cos and sin ``[..., rotary_dim / 2]`` float32 of integer ``positions [...]``, computed once a step."""
    return cos_and_sin(positions[..., None].astype(jnp.float32) * rope.inverse_frequencies())


def cos_and_sin(angles: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float32, of float32 ``angles``; the layers read them and never compute them again."""
    cos, sin = materialise(jnp.stack((jnp.cos(angles), jnp.sin(angles))))
    return cos, sin
