"""Counter-based random numbers: a draw is a function of (seed, position, purpose) and nothing else.

There is no generator state, so batch row, batch size, chunking, cache hits and retries cannot change
what a request samples. The keys are Threefry keys (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", SC 2011) as jax implements them.
"""

from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray


class Purpose(IntEnum):
    """What a number is drawn for. One position may need several independent numbers."""

    PREFILL = 0
    DECODE = 1


def seed_words(seed: int) -> NDArray[np.uint32]:
    """An unsigned 64-bit seed as two words ``[2]`` uint32, high first: the raw key of that seed."""
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be an unsigned 64-bit number, got {seed}")
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)


def uniform(seeds: jax.Array, positions: jax.Array, purpose: Purpose) -> jax.Array:
    """One number in [0, 1) a row: seeds ``[B, 2]`` uint32, positions ``[B]`` int32 -> ``[B]`` float32.

    ``positions`` are the logical positions of the tokens being drawn.
    """

    def one(seed: jax.Array, position: jax.Array) -> jax.Array:
        key = jax.random.wrap_key_data(seed, impl="threefry2x32")
        key = jax.random.fold_in(jax.random.fold_in(key, position), int(purpose))
        return jax.random.uniform(key, (), jnp.float32)

    return jax.vmap(one)(seeds, positions)
