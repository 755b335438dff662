"""The multi-token prediction head that Qwen3.5 checkpoints carry: one more decoder layer.

It reads the embedding of the next token beside the decoder's final-normed hidden, and shares embedding
and head with the decoder. Nothing runs it yet; artifacts keep it.
"""

from typing import Any, NamedTuple

import jax

from ninfer_jax.kernels.linear import Matrix
from ninfer_jax.models.base import LayerKind
from ninfer_jax.models.qwen3_5 import LayerWeights, abstract_dense, abstract_layer
from ninfer_jax.models.qwen3_5_config import Qwen35Config
from ninfer_jax.models.qwen3_5_moe import abstract_sparse
from ninfer_jax.models.specs import matrix, vector

PREFIX = "mtp."


class MTPWeights(NamedTuple):
    """fc ``[H, 2H]`` takes the normed embedding, then the normed hidden; norms ``[H]``, zero-centred."""

    embedding_norm: jax.Array
    hidden_norm: jax.Array
    fc: Matrix
    layer: LayerWeights
    norm: jax.Array


def abstract_mtp(config: Qwen35Config) -> Any:
    """The weights tree with an ArraySpec for each array."""
    hidden, name = config.hidden_size, PREFIX + "layers.0."

    def norm(source: str) -> Any:
        return vector(hidden, PREFIX + source, "hidden", "zeros")

    feed_forward = (
        abstract_dense(hidden, config.intermediate_size, name + "mlp.")
        if config.experts is None
        else abstract_sparse(config, name + "mlp.")
    )
    return MTPWeights(
        embedding_norm=norm("pre_fc_norm_embedding.weight"),
        hidden_norm=norm("pre_fc_norm_hidden.weight"),
        fc=matrix({PREFIX + "fc.weight": hidden}, 2 * hidden, (None, "hidden")),
        layer=abstract_layer(config, name, LayerKind.FULL_ATTENTION, feed_forward),
        norm=norm("norm.weight"),
    )
