"""The Qwen3.5 / 3.6 / 3.8 hybrid decoder: three Gated DeltaNet layers to one of gated full attention.

One pre-norm block: x += mixer(norm(x)); x += feed_forward(norm(x)), every norm but the DeltaNet's own
zero-centred (gain ``1 + w``). This file is the dense model; ``qwen3_5_moe.py`` gives it another feed-forward.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ninfer_jax.kernels.cpu.materialise import barrier
from ninfer_jax.kernels.gated_delta import RecurrentState, causal_conv, gated_delta_rule
from ninfer_jax.kernels.linear import Matrix, embed, linear
from ninfer_jax.kernels.paged_attention import paged_attention
from ninfer_jax.kernels.rms_norm import add_rms_norm, rms_norm
from ninfer_jax.kernels.rope import rotate, split_heads
from ninfer_jax.kernels.swiglu import swiglu
from ninfer_jax.models.base import ArraySpec, KVPool, LayerKind, LayerState, ModelState, StepInputs
from ninfer_jax.models.common import cos_and_sin, head_scores
from ninfer_jax.models.qwen3_5_config import Qwen35Config, parse_config
from ninfer_jax.models.specs import matrix, vector, vocabulary

__all__ = ["abstract", "forward", "logits", "parse_config"]


class AttentionWeights(NamedTuple):
    """Gated full attention. qkv ``[(2N + 2K) D, H]``: for every query head D query rows and its D gate
    rows, then the key rows, then the value rows. Norms are ``[D]``, output ``[H, N D]``."""

    qkv: Matrix
    q_norm: jax.Array
    k_norm: jax.Array
    output: Matrix


class DeltaNetWeights(NamedTuple):
    """Gated DeltaNet. Kd and Vd are the widths of all key and of all value heads, Hv the value heads.

    projection ``[2 Kd + 2 Vd, H]`` holds q, k, v, z rows; gates ``[2 Hv, H]`` a, then b: few rows that
    steer the whole state, so never quantised. conv ``[W, 2 Kd + Vd]``; a_log, dt_bias ``[Hv]`` float32;
    norm ``[dv]``; output ``[H, Vd]``.
    """

    projection: Matrix
    gates: jax.Array
    conv: jax.Array
    a_log: jax.Array
    dt_bias: jax.Array
    norm: jax.Array
    output: Matrix


class DenseWeights(NamedTuple):
    """SwiGLU. gate_up ``[2I, H]`` gate, then up; down ``[H, I]``."""

    gate_up: Matrix
    down: Matrix


class LayerWeights(NamedTuple):
    mixer_norm: jax.Array
    mixer: AttentionWeights | DeltaNetWeights
    feed_forward_norm: jax.Array
    feed_forward: Any


class Qwen35Weights(NamedTuple):
    """``head`` is None where it is tied to ``embedding [V, H]``."""

    embedding: Matrix
    layers: tuple[LayerWeights, ...]
    norm: jax.Array
    head: Matrix | None


FeedForward: TypeAlias = Callable[[Qwen35Config, Any, jax.Array], jax.Array]
"""``(config, weights, x [B, T, H]) -> [B, T, H]``; a module-level function: programs are keyed by it."""


def abstract_attention(config: Qwen35Config, name: str) -> Any:
    """The specs of one full-attention mixer; ``name`` ends in ``self_attn.``."""
    hidden, head_dim = config.hidden_size, config.head_dim
    queries, keys = config.num_heads * head_dim, config.num_kv_heads * head_dim
    rows = {f"{name}q_proj.weight": 2 * queries, f"{name}k_proj.weight": keys, f"{name}v_proj.weight": keys}
    return AttentionWeights(
        qkv=matrix(rows, hidden, ("heads", "hidden")),
        q_norm=vector(head_dim, name + "q_norm.weight", None, "zeros"),
        k_norm=vector(head_dim, name + "k_norm.weight", None, "zeros"),
        output=matrix({name + "o_proj.weight": hidden}, queries, ("hidden", "heads")),
    )


def _abstract_delta_net(config: Qwen35Config, name: str) -> Any:
    hidden, heads = config.hidden_size, config.linear_value_heads
    history, channels = config.conv_shape
    width = history + 1
    rows = {f"{name}in_proj_qkv.weight": channels, f"{name}in_proj_z.weight": config.value_width}
    gates = {f"{name}in_proj_{part}.weight": heads for part in "ab"}
    return DeltaNetWeights(
        projection=matrix(rows, hidden, ("heads", "hidden")),
        gates=matrix(gates, hidden, ("heads", "hidden"), role="vector"),
        conv=ArraySpec(
            shape=(width, channels),
            axes=(None, "heads"),
            sources=(name + "conv1d.weight",),
            source_shapes=((channels, 1, width),),
            role="vector",
            init="uniform",
            transform="conv_taps",
        ),  # type: ignore[arg-type]  # a spec stands where the weights tree has its array
        a_log=vector(heads, name + "A_log", "heads", "zeros", keep_float32=True),
        dt_bias=vector(heads, name + "dt_bias", "heads", keep_float32=True),
        norm=vector(config.linear_value_dim, name + "norm.weight", None),
        output=matrix({name + "out_proj.weight": hidden}, config.value_width, ("hidden", "heads")),
    )


def abstract_dense(hidden: int, inner: int, name: str) -> Any:
    """The specs of one SwiGLU; ``name`` ends in ``mlp.`` or another module that has the three matrices."""
    rows = {f"{name}{part}_proj.weight": inner for part in ("gate", "up")}
    return DenseWeights(
        gate_up=matrix(rows, hidden, ("intermediate", "hidden")),
        down=matrix({name + "down_proj.weight": hidden}, inner, ("hidden", "intermediate")),
    )


def abstract_layer(config: Qwen35Config, name: str, kind: LayerKind, feed_forward: Any) -> Any:
    """The specs of one block around those of its feed-forward; ``name`` ends in ``layers.N.``."""
    match kind:
        case LayerKind.FULL_ATTENTION:
            mixer = abstract_attention(config, name + "self_attn.")
        case LayerKind.GATED_DELTA_NET:
            mixer = _abstract_delta_net(config, name + "linear_attn.")
    return LayerWeights(
        mixer_norm=vector(config.hidden_size, name + "input_layernorm.weight", "hidden", "zeros"),
        mixer=mixer,
        feed_forward_norm=vector(
            config.hidden_size, name + "post_attention_layernorm.weight", "hidden", "zeros"
        ),
        feed_forward=feed_forward,
    )


def abstract_decoder(config: Qwen35Config, feed_forward: Callable[[str], Any]) -> Qwen35Weights:
    """The weights tree; ``feed_forward`` gives the specs of the module of that name (``...mlp.``)."""
    hidden = config.hidden_size

    def layer(index: int, kind: LayerKind) -> Any:
        name = f"{config.prefix}layers.{index}."
        return abstract_layer(config, name, kind, feed_forward(name + "mlp."))

    table = partial(vocabulary, config.vocab_size, hidden)
    return Qwen35Weights(
        embedding=table(config.prefix + "embed_tokens.weight", "embedding"),
        layers=tuple(layer(index, kind) for index, kind in enumerate(config.layer_kinds)),
        norm=vector(hidden, config.prefix + "norm.weight", "hidden", "zeros"),
        head=None if config.tied_head else table("lm_head.weight", "matmul"),
    )


def abstract(config: Qwen35Config) -> Qwen35Weights:
    """The weights tree with an ArraySpec for each array."""
    return abstract_decoder(
        config, lambda name: abstract_dense(config.hidden_size, config.intermediate_size, name)
    )


def rope_tables(config: Qwen35Config, positions: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """cos and sin ``[B, T, rotary_dim / 2]`` of 3-axis ``positions [3, B, T]``; angles are float32."""
    chosen = jnp.moveaxis(positions[config.frequency_axes()], 0, -1)
    cos, sin = cos_and_sin(chosen.astype(jnp.float32) * config.rope.inverse_frequencies())
    return cos.astype(dtype), sin.astype(dtype)


def attention(
    config: Qwen35Config,
    weights: AttentionWeights,
    pool: KVPool,
    x: jax.Array,
    rope: tuple[jax.Array, jax.Array],
    inputs: StepInputs,
) -> tuple[jax.Array, KVPool]:
    """Gated full attention, ``[B, T, H] -> [B, T, H]``, and the pool with this step's keys and values."""
    rows, columns, _ = x.shape
    fused, keys = linear(x, weights.qkv), config.num_kv_heads
    gated, k, v = split_heads(fused, config.head_dim, 2 * config.num_heads, keys, keys)
    gated = gated.reshape(rows, columns, config.num_heads, 2, config.head_dim)
    q = rotate(rms_norm(gated[..., 0, :], weights.q_norm, config.rms_norm_eps, zero_centred=True), *rope)
    k = rotate(rms_norm(k, weights.k_norm, config.rms_norm_eps, zero_centred=True), *rope)
    out, pool = paged_attention(q, k, v, pool, inputs.block_tables, inputs.starts, inputs.lengths)
    out = out * jax.nn.sigmoid(gated[..., 1, :])
    return linear(out.reshape(rows, columns, -1), weights.output), pool


def _gated_norm(x: jax.Array, gate: jax.Array, weight: jax.Array, epsilon: float) -> jax.Array:
    """RMSNorm of float32 ``x`` a head, in the gate's dtype, then the gate: ``w * norm(x) * silu(gate)``."""
    normed = rms_norm(x, jnp.ones_like(weight, jnp.float32), epsilon).astype(gate.dtype) * weight
    return (normed * jax.nn.silu(gate.astype(jnp.float32))).astype(gate.dtype)


def _delta_net(
    config: Qwen35Config, weights: DeltaNetWeights, state: RecurrentState, x: jax.Array, inputs: StepInputs
) -> tuple[jax.Array, RecurrentState]:
    """Gated DeltaNet, ``[B, T, H] -> [B, T, H]``, and the slots after each row's last real column."""
    rows, columns, _ = x.shape
    keys, values = config.key_width, config.value_width
    mixed, z = jnp.split(linear(x, weights.projection), (2 * keys + values,), axis=-1)
    # Behind the barrier XLA does not merge this small product with the large one, copying its weight.
    a, b = jnp.split(linear(barrier(x), weights.gates), 2, axis=-1)
    mixed, conv = causal_conv(mixed, weights.conv, state.conv, inputs.slots, inputs.lengths)
    q, k, v = (
        part.reshape(rows, columns, -1, width)
        for part, width in zip(
            jnp.split(mixed, (keys, 2 * keys), axis=-1),
            (config.linear_key_dim, config.linear_key_dim, config.linear_value_dim),
            strict=True,
        )
    )
    beta = jax.nn.sigmoid(b.astype(jnp.float32))
    log_decay = -jnp.exp(weights.a_log) * jax.nn.softplus(a.astype(jnp.float32) + weights.dt_bias)
    out, rule = gated_delta_rule(q, k, v, beta, log_decay, state.rule, inputs.slots, inputs.lengths)
    normed = _gated_norm(out, z.reshape(out.shape), weights.norm, config.rms_norm_eps)
    return linear(normed.reshape(rows, columns, -1), weights.output), RecurrentState(rule, conv)


def dense_feed_forward(config: Qwen35Config, weights: DenseWeights, x: jax.Array) -> jax.Array:
    del config
    return linear(swiglu(linear(x, weights.gate_up)), weights.down)


@partial(jax.jit, static_argnames=("config", "feed_forward"))
def _layer(
    config: Qwen35Config,
    feed_forward: FeedForward,
    weights: LayerWeights,
    state: LayerState,
    x: jax.Array,
    delta: jax.Array,
    rope: tuple[jax.Array, jax.Array],
    inputs: StepInputs,
) -> tuple[jax.Array, jax.Array, LayerState]:
    """One block over ``x + delta``: the new x, what is to be added to it, and the state.

    Jitted so that a program traces each kind of layer once; XLA inlines the calls."""
    x, normed = add_rms_norm(x, delta, weights.mixer_norm, config.rms_norm_eps, zero_centred=True)
    new: LayerState
    if isinstance(state, KVPool):
        assert isinstance(weights.mixer, AttentionWeights)
        with jax.named_scope("attention"):
            delta, new = attention(config, weights.mixer, state, normed, rope, inputs)
    else:
        assert isinstance(weights.mixer, DeltaNetWeights)
        with jax.named_scope("delta_net"):
            delta, new = _delta_net(config, weights.mixer, state, normed, inputs)
    with jax.named_scope("feed_forward"):
        x, normed = add_rms_norm(x, delta, weights.feed_forward_norm, config.rms_norm_eps, zero_centred=True)
        return x, feed_forward(config, weights.feed_forward, normed), new


def decoder(
    config: Qwen35Config,
    weights: Qwen35Weights,
    state: ModelState,
    inputs: StepInputs,
    feed_forward: FeedForward,
) -> tuple[jax.Array, ModelState]:
    """Final-normed hidden ``[B, T, H]`` and the new state. Layers are unrolled."""
    with jax.named_scope("embedding"):
        x = embed(inputs.tokens, weights.embedding, weights.norm.dtype)
        delta = jnp.zeros_like(x)
        rope = rope_tables(config, inputs.positions, x.dtype)
    states: list[LayerState] = []
    for index, (layer, old) in enumerate(zip(weights.layers, state.layers, strict=True)):
        with jax.named_scope(f"layer_{index}"):
            x, delta, new = _layer(config, feed_forward, layer, old, x, delta, rope, inputs)
        states.append(new)
    with jax.named_scope("final_norm"):
        _, hidden = add_rms_norm(x, delta, weights.norm, config.rms_norm_eps, zero_centred=True)
    return hidden, state._replace(layers=tuple(states))


def forward(
    config: Qwen35Config, weights: Qwen35Weights, state: ModelState, inputs: StepInputs
) -> tuple[jax.Array, ModelState]:
    """Final-normed hidden ``[B, T, H]`` and the new state."""
    return decoder(config, weights, state, inputs, dense_feed_forward)


def logits(config: Qwen35Config, weights: Qwen35Weights, hidden: jax.Array) -> jax.Array:
    """``[..., H] -> [..., V]`` float32; ids that no token has are -inf."""
    scores = head_scores(hidden, weights.head, weights.embedding)
    if config.sample_vocab_size == config.vocab_size:
        return scores
    return jnp.where(jnp.arange(config.vocab_size) < config.sample_vocab_size, scores, -jnp.inf)
