"""The vision tower that Qwen3.5 checkpoints carry. Nothing runs it yet; artifacts keep it."""

from typing import Any, NamedTuple

import jax

from ninfer_jax.kernels.linear import Matrix
from ninfer_jax.models.base import ArraySpec
from ninfer_jax.models.qwen3_5_config import VisionConfig
from ninfer_jax.models.specs import bias, matrix, vector

PREFIX = "model.visual."


class Affine(NamedTuple):
    """weight ``[out, in]`` (of a norm ``[out]``) and bias ``[out]``."""

    weight: Matrix
    bias: jax.Array


class VisionBlock(NamedTuple):
    """qkv ``[3 Hv, Hv]`` holds q, k, v rows; fc1 ``[I, Hv]``, fc2 ``[Hv, I]``."""

    attention_norm: Affine
    qkv: Affine
    projection: Affine
    feed_forward_norm: Affine
    fc1: Affine
    fc2: Affine


class VisionWeights(NamedTuple):
    """patch ``[Hv, C Pt P P]``, a patch's pixels as channel, time, y, x; positions ``[N, Hv]``. The merger
    norms each row of Hv and joins blocks of M = merge^2 rows: fc1 ``[M Hv, M Hv]``, fc2 ``[H, M Hv]``."""

    patch: Affine
    positions: Matrix
    blocks: tuple[VisionBlock, ...]
    merger_norm: Affine
    merger_fc1: Affine
    merger_fc2: Affine


def abstract_vision(config: VisionConfig) -> Any:
    """The weights tree with an ArraySpec for each array."""
    hidden, inner = config.hidden_size, config.intermediate_size
    merged = hidden * config.spatial_merge_size**2

    def block(name: str) -> VisionBlock:
        return VisionBlock(
            attention_norm=_norm(name + "norm1", hidden),
            qkv=_affine(name + "attn.qkv", 3 * hidden, hidden),
            projection=_affine(name + "attn.proj", hidden, hidden),
            feed_forward_norm=_norm(name + "norm2", hidden),
            fc1=_affine(name + "mlp.linear_fc1", inner, hidden),
            fc2=_affine(name + "mlp.linear_fc2", hidden, inner),
        )

    positions = {PREFIX + "pos_embed.weight": config.num_position_embeddings}
    return VisionWeights(
        patch=_patch(config),
        positions=matrix(positions, hidden, (None, "hidden")),
        blocks=tuple(block(f"{PREFIX}blocks.{index}.") for index in range(config.depth)),
        merger_norm=_norm(PREFIX + "merger.norm", hidden),
        merger_fc1=_affine(PREFIX + "merger.linear_fc1", merged, merged),
        merger_fc2=_affine(PREFIX + "merger.linear_fc2", config.out_hidden_size, merged),
    )


def _affine(name: str, rows: int, columns: int) -> Affine:
    sources = {name + ".weight": rows}
    return Affine(matrix(sources, columns, (None, "hidden")), bias(sources, "hidden"))


def _norm(name: str, size: int) -> Affine:
    return Affine(vector(size, name + ".weight", "hidden"), bias({name + ".weight": size}, "hidden"))


def _patch(config: VisionConfig) -> Affine:
    """A convolution whose stride is its kernel: one product a patch."""
    name, side = PREFIX + "patch_embed.proj", config.patch_size
    kernel = (config.in_channels, config.temporal_patch_size, side, side)
    columns = config.in_channels * config.temporal_patch_size * side * side
    weight: Any = ArraySpec(
        (config.hidden_size, columns),
        ("hidden", None),
        (name + ".weight",),
        ((config.hidden_size, *kernel),),
    )
    return Affine(weight, bias({name + ".weight": config.hidden_size}, "hidden"))
