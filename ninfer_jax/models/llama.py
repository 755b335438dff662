"""Dense GQA decoders: Llama (SmolLM2 too), Qwen2 with QKV biases, Qwen3 with normed queries and keys.

One pre-norm block: x += attention(norm(x)); x += mlp(norm(x)). The families differ only in flags.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ninfer_jax.errors import UnsupportedModelError
from ninfer_jax.kernels.linear import Matrix, embed, linear
from ninfer_jax.kernels.paged_attention import paged_attention
from ninfer_jax.kernels.rms_norm import add_rms_norm, rms_norm
from ninfer_jax.kernels.rope import rotate, rotate_qkv, split_heads
from ninfer_jax.kernels.swiglu import swiglu
from ninfer_jax.models.base import KVPool, LayerKind, ModelState, StepInputs
from ninfer_jax.models.common import Rope, head_scores, rope_tables
from ninfer_jax.models.hf_config import ConfigReader, read_rope
from ninfer_jax.models.specs import bias, matrix, vector, vocabulary

MODEL_TYPES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and flags of one dense decoder."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: Rope
    max_position_embeddings: int
    tied_head: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    @property
    def sample_vocab_size(self) -> int:
        return self.vocab_size

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        return (LayerKind.FULL_ATTENTION,) * self.num_layers

    @property
    def rule_shape(self) -> tuple[int, int, int]:
        return (0, 0, 0)

    @property
    def conv_shape(self) -> tuple[int, int]:
        return (0, 0)

    @property
    def rope_axes(self) -> int:
        return 1

    @property
    def experts(self) -> None:
        return None


def parse_config(config: Mapping[str, Any]) -> LlamaConfig:
    """Raises UnsupportedModelError or CorruptModelError naming the member at fault."""
    read = ConfigReader(config)
    model_type = read.text("model_type")
    if model_type not in MODEL_TYPES:
        raise UnsupportedModelError(f"model_type {model_type!r} is not a dense decoder", field="model_type")
    read.expect("hidden_act", "silu", default="silu")
    read.expect("rope_interleaved", False, default=False)
    read.expect("use_sliding_window", False, default=False)
    read.expect("quantization_config", None, default=None)
    for index, kind in enumerate(read.value("layer_types", list, default=[])):
        if kind != "full_attention":
            raise UnsupportedModelError(f"attention of type {kind!r}", field=f"layer_types[{index}]")
    hidden_size = read.size("hidden_size")
    num_heads = read.size("num_attention_heads")
    head_dim = read.size("head_dim", default=128 if model_type == "qwen3" else hidden_size // num_heads)
    num_kv_heads = read.size("num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise UnsupportedModelError(
            f"{num_heads} query heads do not divide over {num_kv_heads} KV heads", field="num_key_value_heads"
        )
    attention_bias = read.flag("attention_bias", default=False)
    return LlamaConfig(
        model_type=model_type,
        vocab_size=read.size("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=read.size("intermediate_size"),
        num_layers=read.size("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=read.number("rms_norm_eps", default=1e-6),
        rope=read_rope(read, head_dim),
        max_position_embeddings=read.size("max_position_embeddings"),
        tied_head=read.flag("tie_word_embeddings", default=False),
        qkv_bias=attention_bias or model_type == "qwen2",
        output_bias=attention_bias and model_type != "qwen2",
        mlp_bias=model_type == "llama" and read.flag("mlp_bias", default=False),
        qk_norm=model_type == "qwen3",
    )


class LayerWeights(NamedTuple):
    """One block. Matrices are ``[out, in]``; N query heads, K KV heads, D head dim, I intermediate.

    qkv ``[(N + 2K) D, H]`` holds q, k, v rows in this order; gate_up ``[2I, H]`` gate, then up.
    """

    input_norm: jax.Array
    qkv: Matrix
    qkv_bias: jax.Array | None
    q_norm: jax.Array | None
    k_norm: jax.Array | None
    output: Matrix
    output_bias: jax.Array | None
    mlp_norm: jax.Array
    gate_up: Matrix
    gate_up_bias: jax.Array | None
    down: Matrix
    down_bias: jax.Array | None


class LlamaWeights(NamedTuple):
    """``head`` is None where it is tied to ``embedding [V, H]``."""

    embedding: Matrix
    layers: tuple[LayerWeights, ...]
    norm: jax.Array
    head: Matrix | None


def _abstract_layer(config: LlamaConfig, index: int) -> LayerWeights:
    name = f"model.layers.{index}."
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    attention, mlp = name + "self_attn.", name + "mlp."
    qkv = {f"{attention}{part}_proj.weight": queries if part == "q" else keys for part in "qkv"}
    output = {f"{attention}o_proj.weight": hidden}
    gate_up = {f"{mlp}{part}_proj.weight": inner for part in ("gate", "up")}
    down = {f"{mlp}down_proj.weight": hidden}

    def head_norm(part: str) -> Any:
        return vector(config.head_dim, f"{attention}{part}_norm.weight", "head") if config.qk_norm else None

    return LayerWeights(
        input_norm=vector(hidden, name + "input_layernorm.weight", "hidden"),
        qkv=matrix(qkv, hidden, ("heads", "hidden")),
        qkv_bias=bias(qkv, "heads") if config.qkv_bias else None,
        q_norm=head_norm("q"),
        k_norm=head_norm("k"),
        output=matrix(output, queries, ("hidden", "heads")),
        output_bias=bias(output, "hidden") if config.output_bias else None,
        mlp_norm=vector(hidden, name + "post_attention_layernorm.weight", "hidden"),
        gate_up=matrix(gate_up, hidden, ("intermediate", "hidden")),
        gate_up_bias=bias(gate_up, "intermediate") if config.mlp_bias else None,
        down=matrix(down, inner, ("hidden", "intermediate")),
        down_bias=bias(down, "hidden") if config.mlp_bias else None,
    )


def abstract(config: LlamaConfig) -> LlamaWeights:
    """The weights tree with an ArraySpec for each array."""
    table = partial(vocabulary, config.vocab_size, config.hidden_size)
    return LlamaWeights(
        embedding=table("model.embed_tokens.weight", "embedding"),
        layers=tuple(_abstract_layer(config, index) for index in range(config.num_layers)),
        norm=vector(config.hidden_size, "model.norm.weight", "hidden"),
        head=None if config.tied_head else table("lm_head.weight", "matmul"),
    )


def _attention(
    config: LlamaConfig,
    weights: LayerWeights,
    pool: KVPool,
    x: jax.Array,
    rope: tuple[jax.Array, jax.Array],
    inputs: StepInputs,
) -> tuple[jax.Array, KVPool]:
    """``[B, T, H] -> [B, T, H]`` and the pool with this step's keys and values."""
    rows, columns, _ = x.shape
    fused = linear(x, weights.qkv, weights.qkv_bias)
    heads, kv_heads = config.num_heads, config.num_kv_heads
    if weights.q_norm is not None and weights.k_norm is not None:
        q, k, v = split_heads(fused, config.head_dim, heads, kv_heads, kv_heads)
        q = rotate(rms_norm(q, weights.q_norm, config.rms_norm_eps), *rope)
        k = rotate(rms_norm(k, weights.k_norm, config.rms_norm_eps), *rope)
    else:
        q, k, v = rotate_qkv(fused, *rope, num_heads=heads, num_kv_heads=kv_heads)
    out, pool = paged_attention(q, k, v, pool, inputs.block_tables, inputs.starts, inputs.lengths)
    return linear(out.reshape(rows, columns, -1), weights.output, weights.output_bias), pool


def _mlp(weights: LayerWeights, x: jax.Array) -> jax.Array:
    gate_up = linear(x, weights.gate_up, weights.gate_up_bias)
    return linear(swiglu(gate_up), weights.down, weights.down_bias)


@partial(jax.jit, static_argnames="config")
def _layer(
    config: LlamaConfig,
    weights: LayerWeights,
    pool: KVPool,
    x: jax.Array,
    delta: jax.Array,
    rope: tuple[jax.Array, jax.Array],
    inputs: StepInputs,
) -> tuple[jax.Array, jax.Array, KVPool]:
    """One block over ``x + delta``: the new x, what is to be added to it, and the pool.

    Jitted so that a program traces and lowers it once for all of its layers; XLA inlines the calls, so the
    layers are still unrolled when they are compiled."""
    with jax.named_scope("attention"):
        x, normed = add_rms_norm(x, delta, weights.input_norm, config.rms_norm_eps)
        delta, pool = _attention(config, weights, pool, normed, rope, inputs)
    with jax.named_scope("mlp"):
        x, normed = add_rms_norm(x, delta, weights.mlp_norm, config.rms_norm_eps)
        return x, _mlp(weights, normed), pool


def forward(
    config: LlamaConfig, weights: LlamaWeights, state: ModelState, inputs: StepInputs
) -> tuple[jax.Array, ModelState]:
    """Final-normed hidden ``[B, T, H]`` and the new state. Layers are unrolled."""
    with jax.named_scope("embedding"):
        x = embed(inputs.tokens, weights.embedding, weights.norm.dtype)
        delta = jnp.zeros_like(x)
        rope = rope_tables(config.rope, inputs.positions[0])
    pools: list[Any] = []
    for index, (layer, pool) in enumerate(zip(weights.layers, state.layers, strict=True)):
        with jax.named_scope(f"layer_{index}"):
            assert isinstance(pool, KVPool)
            x, delta, pool = _layer(config, layer, pool, x, delta, rope, inputs)
        pools.append(pool)
    with jax.named_scope("final_norm"):
        _, hidden = add_rms_norm(x, delta, weights.norm, config.rms_norm_eps)
    return hidden, state._replace(layers=tuple(pools))


def logits(config: LlamaConfig, weights: LlamaWeights, hidden: jax.Array) -> jax.Array:
    """``[..., H] -> [..., V]`` float32."""
    del config
    return head_scores(hidden, weights.head, weights.embedding)
