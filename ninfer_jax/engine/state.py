"""The device's mutable state and the per-lane tables beside it.

Letters: C lanes, L pages of a block table, V vocabulary, P pages of a pool.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.sampling import SamplingRows
from ninfer_jax.models.base import NULL_PAGE, ModelConfig, ModelState
from ninfer_jax.models.state import allocate_state
from ninfer_jax.types import SamplingParams


class EngineState(NamedTuple):
    """Donated into every program and returned by it.

    ``counts`` ``[C, V]`` int32: how often each token stands in the lane's output so far, for penalties;
    counted when the token is fed, so it ends at the same token as the model state.
    """

    model: ModelState
    counts: jax.Array


class LaneTable(NamedTuple):
    """What is fixed while lanes stay bound; read by the programs, uploaded when a binding changes.

    block_tables ``[C, L]`` int32 page ids, null beyond a lane's entitlement · slots ``[C]`` int32, where
    the lane's state image is · rope_deltas ``[C]`` int32, added to the cache ordinal for the rope
    position of generated tokens · sampling rows ``[C]``.
    """

    block_tables: jax.Array
    slots: jax.Array
    rope_deltas: jax.Array
    sampling: SamplingRows

    @classmethod
    def of(cls, bindings: Sequence[LaneBinding | None], pages_per_lane: int) -> "LaneTable":
        """From what is bound now; a free lane gets null pages and a neutral sampler."""
        block_tables = np.full((len(bindings), pages_per_lane), NULL_PAGE, np.int32)
        for row, binding in zip(block_tables, bindings, strict=True):
            if binding is not None:
                row[: len(binding.pages)] = binding.pages
        return cls(
            block_tables=jax.device_put(block_tables),
            slots=jax.device_put(np.array([b.slot if b else 0 for b in bindings], np.int32)),
            rope_deltas=jax.device_put(np.array([b.rope_delta if b else 0 for b in bindings], np.int32)),
            sampling=SamplingRows.of([b.sampling if b else SamplingParams() for b in bindings]),
        )


def allocate(model: ModelConfig, config: EngineConfig, dtype: DTypeLike) -> EngineState:
    """Zeroed state: the configured pages and the null page, an image a slot, counts a lane. ``dtype`` is
    that of activations and KV: float32 on CPU, where an update of a bfloat16 pool converts it whole."""
    return EngineState(
        model=allocate_state(model, config.num_pages + 1, config.num_slots, dtype, dtype),
        counts=jnp.zeros((config.max_concurrency, model.vocab_size), jnp.int32),
    )
