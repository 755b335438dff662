"""What a checkpoint says about generating: end-of-turn ids, default sampling, named special tokens."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ninfer_jax.errors import CorruptModelError
from ninfer_jax.text.tokenizer import GGUF_TOKENIZER, Tokenizer
from ninfer_jax.types import SamplingParams

GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
MODEL_CONFIG = "config.json"

_TOKEN_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
_GGUF_NAMES = {"bos": "bos_token", "eos": "eos_token", "padding": "pad_token", "unknown": "unk_token"}


_THINKING = SamplingParams(temperature=1.0, top_p=0.95, top_k=20)
_PLAIN = SamplingParams(temperature=0.7, top_p=0.80, top_k=20, presence_penalty=1.5)
_PRESETS: Mapping[str, tuple[SamplingParams, SamplingParams]] = {
    "qwen3.6-27b": (_THINKING, _PLAIN),
    "qwen3.8-27b": (_THINKING, _PLAIN),
    "qwen3.6-35b-a3b": (replace(_THINKING, presence_penalty=1.5), _PLAIN),
}
"""Registered identities: the sampler while thinking, and without."""


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """``eos_ids`` end a turn. The samplers are the identity's registered ones, else both are what
    generation_config.json asks for (greedy when it says ``do_sample: false``)."""

    eos_ids: frozenset[int]
    thinking: SamplingParams
    plain: SamplingParams


def load_json_resource(resources: Mapping[str, bytes], name: str) -> Mapping[str, Any]:
    """A JSON object resource, empty when absent. Raises CorruptModelError."""
    if name not in resources:
        return {}
    try:
        value = json.loads(resources[name])
    except (ValueError, RecursionError) as error:
        raise CorruptModelError(f"{name}: {error}", field=name) from error
    if not isinstance(value, dict):
        raise CorruptModelError(f"{name}: not a JSON object", field=name)
    return value


def named_tokens(resources: Mapping[str, bytes], tokenizer: Tokenizer) -> dict[str, str]:
    """``bos_token`` and its like, as templates print them."""
    config = load_json_resource(resources, TOKENIZER_CONFIG)
    found: dict[str, str] = {}
    for name in _TOKEN_NAMES:
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[name] = text
    gguf = load_json_resource(resources, GGUF_TOKENIZER)
    for short, name in _GGUF_NAMES.items():
        token_id = gguf.get(f"{short}_token_id")
        if isinstance(token_id, int) and 0 <= token_id < tokenizer.vocab_size:
            found.setdefault(name, tokenizer.token_bytes(token_id).decode(errors="replace"))
    return found


def generation_defaults(
    resources: Mapping[str, bytes],
    tokenizer: Tokenizer,
    tokens: Mapping[str, str],
    *,
    turn_end: str | None,
    model_id: str | None,
) -> GenerationDefaults:
    """``turn_end`` is the token with which the chat template ends a turn, where it has one."""
    config = load_json_resource(resources, GENERATION_CONFIG)
    eos = _ids(config.get("eos_token_id")) or _ids(
        load_json_resource(resources, MODEL_CONFIG).get("eos_token_id")
    )
    for token in (tokens.get("eos_token"), turn_end):
        token_id = tokenizer.id_of(token) if token else None
        if token_id is not None:
            eos |= {token_id}
    sampling = _sampling(config)
    thinking, plain = _PRESETS.get(model_id or "", (sampling, sampling))
    return GenerationDefaults(frozenset(eos), thinking, plain)


def _sampling(config: Mapping[str, Any]) -> SamplingParams:
    plain = SamplingParams()
    if config.get("do_sample") is False:
        return SamplingParams(temperature=0.0)
    return SamplingParams(
        temperature=_number(config, "temperature", plain.temperature),
        top_k=int(_number(config, "top_k", plain.top_k)),
        top_p=_number(config, "top_p", plain.top_p),
        min_p=_number(config, "min_p", plain.min_p),
    )


def _number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise CorruptModelError(f"{GENERATION_CONFIG}: {name} is {value!r}", field=name)
    return value


def _ids(value: object) -> set[int]:
    values = value if isinstance(value, list) else [value]
    return {item for item in values if isinstance(item, int) and not isinstance(item, bool)}
