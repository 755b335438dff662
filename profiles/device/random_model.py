"""A random model of any configuration, drawn on the device: billions of weights in seconds."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ninfer_jax.artifact.loader import Identity, LoadedModel, SourceDescription, activation_dtype
from ninfer_jax.artifact.recognise import recognise
from ninfer_jax.config import WeightFormat
from ninfer_jax.kernels.linear import Matrix, QuantArray
from ninfer_jax.models.weights import is_spec, leaf_dtype, num_parameters

INT8_DEVIATION = 73.3
"""Of uniform int8 values."""


def random_model(name: str, hf_config: Mapping[str, Any], weights: WeightFormat) -> LoadedModel:
    """As if loaded, but without a tokenizer. The largest arrays are drawn first, so that what drawing one
    takes beside it never adds to all the others."""
    architecture, config, specs = recognise(hf_config)
    leaves, structure = jax.tree.flatten(specs, is_leaf=is_spec)
    activation = activation_dtype(weights)
    drawn: dict[int, Any] = {}
    for index, spec in sorted(enumerate(leaves), key=lambda pair: -math.prod(pair[1].shape)):
        dtype = leaf_dtype(spec, weights, activation).name
        init = "matrix" if spec.role != "vector" else spec.init
        drawn[index] = _draw(jax.random.key(index), spec.shape, dtype, init)
        jax.block_until_ready(drawn[index])  # type: ignore[no-untyped-call]
    tree = jax.tree.unflatten(structure, [drawn[index] for index in range(len(leaves))])
    return LoadedModel(
        identity=Identity(name, config.model_type),
        architecture=architecture,
        config=config,
        hf_config=hf_config,
        weights=tree,
        weight_format=weights,
        resources={},
        source=SourceDescription("random", name, {}),
        num_parameters=num_parameters(specs),
        weight_bytes=sum(array.nbytes for array in jax.tree.leaves(tree)),
    )


def random_matrix(key: jax.Array, shape: tuple[int, ...], dtype: str) -> Matrix:
    """Rows of length about one, in ``int8``, ``bfloat16`` or ``float32``. Traceable."""
    scale = shape[-1] ** -0.5
    if dtype == "int8":
        bits = jax.random.bits(key, shape, jnp.uint8)
        values = jnp.maximum(jax.lax.bitcast_convert_type(bits, jnp.int8), -127)
        return QuantArray(values, jnp.full(shape[:-1], scale / INT8_DEVIATION, jnp.float32))
    return jnp.asarray(jax.random.normal(key, shape, dtype) * scale, dtype)


@partial(jax.jit, static_argnames=("shape", "dtype", "init"))
def _draw(key: jax.Array, shape: tuple[int, ...], dtype: str, init: str) -> Any:
    match init:
        case "matrix":
            return random_matrix(key, shape, dtype)
        case "ones":
            return jnp.ones(shape, dtype)
        case "zeros":
            return jnp.zeros(shape, dtype)
        case "uniform":
            return jax.random.uniform(key, shape, dtype)
    return random_matrix(key, shape, dtype)
