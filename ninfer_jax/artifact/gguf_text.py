"""GGUF metadata as frontend resources: the tokenizer's raw tables, the chat template, end tokens.

``tokenizer.gguf.json`` is plain data, from which the text layer builds a tokenizer::

    {"model": "gpt2" | "llama" ..., "pre": "smollm" | "qwen2" ..., "tokens": [str],
     "token_types": [int], "merges": ["a b"], "scores": [float], "bos_token_id": int | null,
     "eos_token_id": ..., "unk_token_id": ..., "pad_token_id": ...,
     "add_bos_token": bool | null, "add_eos_token": ..., "add_space_prefix": ...}

Token types are llama.cpp's: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte.
"""

import json
from collections.abc import Mapping
from typing import Any

from ninfer_jax.errors import CorruptModelError

TOKENIZER = "tokenizer.gguf.json"
CONTROL = 3
END_OF_GENERATION = frozenset(
    {
        "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
        "<|end_of_text|>", "<EOT>", "<|eot|>",
    }
)  # fmt: skip
"""Control tokens that end a turn in some family; a GGUF file names only one of its own."""

_LISTS = {"tokens": str, "token_type": int, "merges": str, "scores": float}
_SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_FLAGS = ("add_bos_token", "add_eos_token", "add_space_prefix")
_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


def text_resources(metadata: Mapping[str, Any]) -> dict[str, bytes]:
    """Raises CorruptModelError where the vocabulary is missing or its tables disagree in length."""
    tokenizer = _tokenizer(metadata)
    resources = {
        TOKENIZER: json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode(),
        "generation_config.json": json.dumps(_generation_config(metadata, tokenizer), indent=2).encode(),
    }
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        resources["chat_template.jinja"] = template.encode()
    return resources


def _tokenizer(metadata: Mapping[str, Any]) -> dict[str, Any]:
    lists = {key: _list(metadata, key, kind) for key, kind in _LISTS.items()}
    tokens, types, scores = lists["tokens"], lists["token_type"], lists["scores"]
    if not tokens:
        raise CorruptModelError("tokenizer.ggml.tokens is missing", field="tokenizer.ggml.tokens")
    for key, table in (("token_type", types), ("scores", scores)):
        if table and len(table) != len(tokens):
            raise CorruptModelError(
                f"tokenizer.ggml.{key} has {len(table)} entries for {len(tokens)} tokens", field=key
            )
    return {
        "model": metadata.get("tokenizer.ggml.model"),
        "pre": metadata.get("tokenizer.ggml.pre", "default"),
        "tokens": tokens,
        "token_types": types,
        "merges": lists["merges"],
        "scores": scores,
        **{
            f"{short}_token_id": _token_id(metadata, f"{name}_token_id", len(tokens))
            for short, name in _SPECIAL.items()
        },
        **{flag: metadata.get(f"tokenizer.ggml.{flag}") for flag in _FLAGS},
    }


def _list(metadata: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    values = metadata.get(f"tokenizer.ggml.{key}", [])
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise CorruptModelError(f"tokenizer.ggml.{key} is not a list of {kind.__name__}", field=key)
    return values


def _token_id(metadata: Mapping[str, Any], key: str, size: int) -> int | None:
    token = metadata.get(f"tokenizer.ggml.{key}")
    if token is None:
        return None
    if not isinstance(token, int) or not 0 <= token < size:
        raise CorruptModelError(f"tokenizer.ggml.{key} is {token!r}, not one of {size} tokens", field=key)
    return token


def _generation_config(metadata: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """What ``generation_config.json`` would say. The declared end of sequence comes first."""
    tokens, types = tokenizer["tokens"], tokenizer["token_types"]
    ends = [tokenizer["eos_token_id"]]
    ends += [_token_id(metadata, f"{name}_token_id", len(tokens)) for name in ("eot", "eom")]
    ends += [
        token
        for token, text in enumerate(tokens)
        if text in END_OF_GENERATION and (not types or types[token] == CONTROL)
    ]
    config: dict[str, Any] = {"eos_token_id": list(dict.fromkeys(end for end in ends if end is not None))}
    for special in ("bos", "pad"):
        if tokenizer[f"{special}_token_id"] is not None:
            config[f"{special}_token_id"] = tokenizer[f"{special}_token_id"]
    for key, name in _SAMPLING.items():
        value = metadata.get(f"general.sampling.{key}")
        if isinstance(value, int | float):
            config[name] = value
    return config
