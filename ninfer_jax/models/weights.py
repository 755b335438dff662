"""Maps over the tree of ``ArraySpec`` that ``abstract(config)`` returns: random init, formats, sizes.

The activation dtype is that of the ``vector`` leaves (norms, biases): float32 on CPU, where bfloat16
arithmetic is slow, bfloat16 on an accelerator. Only matrices change with the weight format.
"""

import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from numpy.typing import NDArray

from ninfer_jax.config import WeightFormat
from ninfer_jax.kernels.linear import quantise
from ninfer_jax.models.base import ArraySpec, Weights


def is_spec(node: Any) -> bool:
    return isinstance(node, ArraySpec)


def spec_leaves(specs: Weights) -> list[ArraySpec]:
    return jax.tree.leaves(specs, is_leaf=is_spec)


def num_parameters(specs: Weights) -> int:
    return sum(math.prod(spec.shape) for spec in spec_leaves(specs))


def to_layout(spec: ArraySpec, array: NDArray[Any]) -> NDArray[Any]:
    """A leaf's sources, concatenated on axis 0, in the layout that the model computes with."""
    match spec.transform:
        case None:
            return array.reshape(spec.shape)
        case "conv_taps":  # [channels, 1, taps] of a depthwise convolution
            return np.ascontiguousarray(array.reshape(array.shape[0], -1).T)
        case unknown:
            raise ValueError(f"{spec.sources[0]}: no rule for transform {unknown!r}")


def random_array(spec: ArraySpec, seed: int) -> NDArray[np.float32]:
    """A float32 array for one spec; depends on the seed and the tensor's name, not on tree order."""
    rng = np.random.default_rng((seed, zlib.crc32(spec.sources[0].encode())))
    match spec.init:
        case "ones":
            return np.ones(spec.shape, np.float32)
        case "zeros":
            return np.zeros(spec.shape, np.float32)
        case "uniform":
            return rng.random(spec.shape, np.float32)
        case "normal":
            return rng.standard_normal(spec.shape, np.float32) * np.float32(spec.shape[-1] ** -0.5)


def leaf_dtype(spec: ArraySpec, weight_format: WeightFormat, activation_dtype: DTypeLike) -> np.dtype[Any]:
    """The element type that a leaf is computed with; a matrix of int8 is a ``QuantArray``."""
    if spec.role == "vector":
        dtype = jnp.dtype(jnp.float32 if spec.keep_float32 else activation_dtype)
    else:
        dtype = jnp.dtype({"int8": jnp.int8, "bf16": jnp.bfloat16, "f32": jnp.float32}[weight_format])
    return dtype


def format_array(
    spec: ArraySpec, array: NDArray[Any], weight_format: WeightFormat, activation_dtype: DTypeLike
) -> Any:
    """One loaded array as the leaf that the model computes with."""
    dtype = leaf_dtype(spec, weight_format, activation_dtype)
    return quantise(array) if dtype == np.int8 else jnp.asarray(array, dtype)


def random_weights(
    specs: Weights,
    seed: int = 0,
    weight_format: WeightFormat = "f32",
    activation_dtype: DTypeLike = jnp.float32,
) -> Weights:
    """Random weights of any model, scaled so that activations stay near one."""

    def init(spec: ArraySpec) -> Any:
        return format_array(spec, random_array(spec, seed), weight_format, activation_dtype)

    return jax.tree.map(init, specs, is_leaf=is_spec)
