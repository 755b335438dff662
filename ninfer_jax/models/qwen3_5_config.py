"""Configurations of the Qwen3.5 / 3.6 / 3.8 hybrids, dense and mixture of experts, read strictly.

A checkpoint is either multimodal (``model_type`` ``qwen3_5``, sections ``text_config`` and
``vision_config``, weights under ``model.language_model.``) or text only (``qwen3_5_text``, no sections,
weights under ``model.``). The ``_moe`` types differ by their feed-forward members alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_jax.errors import CorruptModelError, UnsupportedModelError
from ninfer_jax.models.base import LayerKind
from ninfer_jax.models.common import Rope
from ninfer_jax.models.hf_config import ConfigReader

VOCABULARY_ROWS = 248320
ADDRESSABLE_TOKENS = 248077
"""The family's tokenizer has this many ids; its embedding and head have VOCABULARY_ROWS rows. The rows
in between are not zero and must never be sampled."""

DEFAULT_SECTION = (11, 11, 10)


@dataclass(frozen=True)
class ExpertsConfig:
    """Sizes of a sparse mixture: ``top_k`` of ``count`` experts a token, and one shared by all."""

    count: int
    top_k: int
    intermediate_size: int
    shared_intermediate_size: int


@dataclass(frozen=True)
class VisionConfig:
    """Sizes of the vision tower; a text request never runs it."""

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    in_channels: int
    patch_size: int
    temporal_patch_size: int
    spatial_merge_size: int
    num_position_embeddings: int
    out_hidden_size: int


@dataclass(frozen=True)
class Qwen35Config:
    """Sizes of one hybrid. ``linear_*`` belong to the Gated DeltaNet layers, ``num_heads`` to ``head_dim``
    to the full-attention layers. ``intermediate_size`` is 0 where ``experts`` is set."""

    model_type: str
    prefix: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    experts: ExpertsConfig | None
    layer_kinds: tuple[LayerKind, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: Rope
    mrope_section: tuple[int, int, int]
    linear_key_heads: int
    linear_value_heads: int
    linear_key_dim: int
    linear_value_dim: int
    conv_width: int
    rms_norm_eps: float
    max_position_embeddings: int
    tied_head: bool
    mtp_layers: int
    vision: VisionConfig | None

    @property
    def sample_vocab_size(self) -> int:
        return ADDRESSABLE_TOKENS if self.vocab_size == VOCABULARY_ROWS else self.vocab_size

    @property
    def rope_axes(self) -> int:
        return 3

    @property
    def key_width(self) -> int:
        return self.linear_key_heads * self.linear_key_dim

    @property
    def value_width(self) -> int:
        return self.linear_value_heads * self.linear_value_dim

    @property
    def rule_shape(self) -> tuple[int, int, int]:
        return (self.linear_value_heads, self.linear_key_dim, self.linear_value_dim)

    @property
    def conv_shape(self) -> tuple[int, int]:
        return (self.conv_width - 1, 2 * self.key_width + self.value_width)

    def frequency_axes(self) -> NDArray[np.int32]:
        """``[rotary_dim / 2]``: which of the axes (time, height, width) turns each frequency.

        Interleaved sections: height takes 1, 4, 7, ..., width 2, 5, 8, ..., time the rest.
        """
        index = np.arange(self.rope.rotary_dim // 2)
        axis = index % 3
        return np.where(index < 3 * np.asarray(self.mrope_section)[axis], axis, 0).astype(np.int32)


MODEL_TYPES = ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def parse_config(config: Mapping[str, Any]) -> Qwen35Config:
    """Raises UnsupportedModelError or CorruptModelError naming the member at fault."""
    top = ConfigReader(config)
    model_type = top.text("model_type")
    if model_type not in MODEL_TYPES:
        raise UnsupportedModelError(f"model_type {model_type!r} is not a Qwen3.5 hybrid", field="model_type")
    top.expect("quantization_config", None, default=None)
    if model_type.endswith("_text"):
        return _parse_text(top, model_type, "model.", top.flag("tie_word_embeddings", default=False), None)
    text = top.section("text_config")
    if text is None:
        raise CorruptModelError("config.json lacks text_config", field="text_config")
    text.expect("model_type", model_type + "_text", default=model_type + "_text")
    tower = None if top.flag("language_model_only", default=False) else top.section("vision_config")
    vision = None if tower is None else _parse_vision(tower)
    tied = top.flag("tie_word_embeddings", default=text.flag("tie_word_embeddings", default=False))
    prefix = "model.language_model."
    return _parse_text(text, model_type + "_text", prefix, tied, vision)


def _parse_text(
    read: ConfigReader, model_type: str, prefix: str, tied_head: bool, vision: VisionConfig | None
) -> Qwen35Config:
    _refuse_variants(read)
    head_dim = read.size("head_dim")
    rope, section = _read_rope(read, head_dim)
    is_sparse = "moe" in model_type
    sizes = Qwen35Config(
        model_type=model_type,
        prefix=prefix,
        vocab_size=read.size("vocab_size"),
        hidden_size=read.size("hidden_size"),
        intermediate_size=0 if is_sparse else read.size("intermediate_size"),
        experts=_read_experts(read) if is_sparse else None,
        layer_kinds=_read_layers(read),
        num_heads=read.size("num_attention_heads"),
        num_kv_heads=read.size("num_key_value_heads"),
        head_dim=head_dim,
        rope=rope,
        mrope_section=section,
        linear_key_heads=read.size("linear_num_key_heads"),
        linear_value_heads=read.size("linear_num_value_heads"),
        linear_key_dim=read.size("linear_key_head_dim"),
        linear_value_dim=read.size("linear_value_head_dim"),
        conv_width=read.size("linear_conv_kernel_dim"),
        rms_norm_eps=read.number("rms_norm_eps", default=1e-6),
        max_position_embeddings=read.size("max_position_embeddings"),
        tied_head=tied_head,
        mtp_layers=read.value("mtp_num_hidden_layers", int, default=0),
        vision=vision,
    )
    _check_divides(read, "num_attention_heads", sizes.num_heads, "num_key_value_heads", sizes.num_kv_heads)
    keys, values = sizes.linear_key_heads, sizes.linear_value_heads
    _check_divides(read, "linear_num_value_heads", values, "linear_num_key_heads", keys)
    if sizes.conv_width < 2:
        raise UnsupportedModelError(
            "a convolution of width 1 has no history", field=read.name("linear_conv_kernel_dim")
        )
    return sizes


def _refuse_variants(read: ConfigReader) -> None:
    """Members that change the mathematics, at the one value that we implement."""
    read.expect("hidden_act", "silu", default="silu")
    read.expect("attn_output_gate", True, default=True)
    read.expect("attention_bias", False, default=False)
    read.expect("mamba_ssm_dtype", "float32", default="float32")
    read.expect("mtp_use_dedicated_embeddings", False, default=False)
    read.expect("mlp_only_layers", [], default=[])
    read.expect("decoder_sparse_step", 1, default=1)
    if read.value("mtp_num_hidden_layers", int, default=0) not in (0, 1):
        read.expect("mtp_num_hidden_layers", 1, default=1)


def _check_divides(read: ConfigReader, many: str, count: int, few: str, groups: int) -> None:
    if count % groups:
        raise UnsupportedModelError(
            f"{read.name(many)} {count} does not divide over {few} {groups}", field=read.name(many)
        )


def _read_layers(read: ConfigReader) -> tuple[LayerKind, ...]:
    count = read.size("num_hidden_layers")
    interval = read.size("full_attention_interval", default=4)
    names = read.value("layer_types", list, default=[])
    if not names:
        names = ["linear_attention" if (index + 1) % interval else "full_attention" for index in range(count)]
    if len(names) != count:
        raise CorruptModelError(
            f"{read.name('layer_types')} has {len(names)} entries for {count} layers",
            field=read.name("layer_types"),
        )
    known = {"full_attention": LayerKind.FULL_ATTENTION, "linear_attention": LayerKind.GATED_DELTA_NET}
    for index, name in enumerate(names):
        if name not in known:
            raise UnsupportedModelError(
                f"layer of type {name!r} is not supported", field=f"{read.name('layer_types')}[{index}]"
            )
    return tuple(known[name] for name in names)


def _read_experts(read: ConfigReader) -> ExpertsConfig:
    experts = ExpertsConfig(
        count=read.size("num_experts"),
        top_k=read.size("num_experts_per_tok"),
        intermediate_size=read.size("moe_intermediate_size"),
        shared_intermediate_size=read.size("shared_expert_intermediate_size"),
    )
    if experts.top_k > experts.count:
        raise CorruptModelError(
            f"{experts.top_k} experts a token of {experts.count}", field=read.name("num_experts_per_tok")
        )
    return experts


def _read_rope(read: ConfigReader, head_dim: int) -> tuple[Rope, tuple[int, int, int]]:
    """Theta, rotary width and the interleaved sections of the three axes."""
    section = read.section("rope_parameters") or read.section("rope_scaling") or read
    has_theta = section.value("rope_theta", (int, float), default=0) != 0
    theta = (section if has_theta else read).number("rope_theta")
    top_fraction = read.number("partial_rotary_factor", default=0.25)
    fraction = section.number("partial_rotary_factor", default=top_fraction)
    section.expect("rope_type", "default", default="default")
    section.expect("type", "default", default="default")
    section.expect("mrope_interleaved", True, default=True)
    rotary_dim = int(head_dim * fraction)
    field = section.name("mrope_section")
    sizes = section.value("mrope_section", list, default=list(DEFAULT_SECTION))
    if len(sizes) != 3 or not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise CorruptModelError(f"config.json: {field} is {sizes!r}, not three sizes", field=field)
    is_given = section.value("mrope_section", list, default=[]) != []
    if is_given and (rotary_dim % 2 or sum(sizes) != rotary_dim // 2):
        raise CorruptModelError(
            f"{field} {sizes} does not share out the {rotary_dim // 2} rotary frequencies", field=field
        )
    return Rope(rotary_dim, theta), (sizes[0], sizes[1], sizes[2])


def _parse_vision(read: ConfigReader) -> VisionConfig:
    read.expect("deepstack_visual_indexes", [], default=[])
    read.expect("hidden_act", "gelu_pytorch_tanh", default="gelu_pytorch_tanh")
    return VisionConfig(
        depth=read.size("depth"),
        hidden_size=read.size("hidden_size"),
        intermediate_size=read.size("intermediate_size"),
        num_heads=read.size("num_heads"),
        in_channels=read.size("in_channels", default=3),
        patch_size=read.size("patch_size"),
        temporal_patch_size=read.size("temporal_patch_size", default=2),
        spatial_merge_size=read.size("spatial_merge_size", default=2),
        num_position_embeddings=read.size("num_position_embeddings"),
        out_hidden_size=read.size("out_hidden_size"),
    )
