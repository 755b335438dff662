"""Perplexity of a text under a model, through the forms of computation that serving uses.

A weight matrix is multiplied in different ways for one row, for a few and for many, and quantised
weights lose a different amount in each; so the text can be fed in steps of any shape.
"""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.artifact.loader import LoadedModel, activation_dtype
from ninfer_jax.config import pages_for
from ninfer_jax.models.base import Architecture, ModelConfig, ModelState, StepInputs, Weights
from ninfer_jax.models.state import allocate_state


@partial(jax.jit, static_argnames=("architecture", "config"), donate_argnames="state")
def token_losses(
    architecture: Architecture,
    config: ModelConfig,
    weights: Weights,
    state: ModelState,
    inputs: StepInputs,
    targets: jax.Array,
) -> tuple[jax.Array, ModelState]:
    """Negative log likelihoods ``[B, T]`` of ``targets [B, T]``, each the token after its column."""
    hidden, state = architecture.forward(config, weights, state, inputs)
    scores = jax.nn.log_softmax(architecture.logits(config, weights, hidden), axis=-1)
    return -jnp.take_along_axis(scores, targets[..., None], axis=-1)[..., 0], state


def perplexity(model: LoadedModel, token_ids: Sequence[int], *, rows: int = 1, columns: int = 256) -> float:
    """``exp`` of the mean loss of all predicted tokens.

    The text is cut into ``rows`` equal parts that run side by side, ``columns`` tokens a step; what is
    left over is dropped. (1, 256) computes like prefill, (8, 1) like a decode round of eight.
    """
    steps = (len(token_ids) - 1) // (rows * columns)
    if steps < 1:
        raise ValueError(f"{len(token_ids)} tokens do not fill {rows} rows of {columns} columns")
    length = steps * columns
    ids = np.asarray(token_ids, np.int32)
    parts = np.stack([ids[row * length : (row + 1) * length + 1] for row in range(rows)])
    num_pages = pages_for(length)
    dtype = activation_dtype(model.weight_format)
    state = allocate_state(model.config, 1 + rows * num_pages, rows, dtype, dtype)
    block_tables = 1 + np.arange(rows * num_pages, dtype=np.int32).reshape(rows, num_pages)
    losses = []
    for start in range(0, length, columns):
        ordinals = np.broadcast_to(np.arange(start, start + columns, dtype=np.int32), (rows, columns))
        parallel = (
            parts[:, start : start + columns],
            np.stack([ordinals] * model.config.rope_axes),
            np.full(rows, start, np.int32),
            np.full(rows, columns, np.int32),
            block_tables,
            np.arange(rows, dtype=np.int32),
        )
        inputs = StepInputs(*(jnp.asarray(array) for array in parallel))
        targets = parts[:, start + 1 : start + columns + 1]
        loss, state = token_losses(model.architecture, model.config, model.weights, state, inputs, targets)
        losses.append(np.asarray(loss))
    return math.exp(float(np.mean(losses)))
