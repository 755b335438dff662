"""GGUF metadata as frontend resources: the tokenizer's raw tables, the chat template, end tokens.

``gguf_tokenizer.json`` holds every ``tokenizer.ggml.*`` key without that prefix (``model``, ``pre``,
``tokens``, ``token_type``, ``merges``, ``scores``, ``bos_token_id`` ...); the text layer builds a
tokenizer from it. Token types are llama.cpp's: 3 is a control token.
"""

import json
from collections.abc import Mapping
from typing import Any

from ninfer_jax.errors import CorruptModelError

TOKENIZER = "gguf_tokenizer.json"
PREFIX = "tokenizer.ggml."
CONTROL = 3
END_OF_GENERATION = frozenset(
    {
        "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
        "<|end_of_text|>", "<EOT>", "<|eot|>",
    }
)  # fmt: skip
"""Control tokens that end a turn in some family; a GGUF file names only one of its own."""

_LISTS = {"tokens": str, "token_type": int, "merges": str, "scores": float}
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
    tokenizer = {key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)}
    for key, kind in _LISTS.items():
        values = tokenizer.setdefault(key, [])
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise CorruptModelError(f"{PREFIX}{key} is not a list of {kind.__name__}", field=PREFIX + key)
    count = len(tokenizer["tokens"])
    if not count:
        raise CorruptModelError(f"{PREFIX}tokens is missing", field=f"{PREFIX}tokens")
    for key in ("token_type", "scores"):
        if len(tokenizer[key]) not in (0, count):
            raise CorruptModelError(
                f"{PREFIX}{key} has {len(tokenizer[key])} entries for {count} tokens", field=PREFIX + key
            )
    for key, token in tokenizer.items():
        if key.endswith("_token_id") and not (isinstance(token, int) and 0 <= token < count):
            raise CorruptModelError(
                f"{PREFIX}{key} is {token!r}, not one of {count} tokens", field=PREFIX + key
            )
    return tokenizer


def _generation_config(metadata: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    """What ``generation_config.json`` would say. The declared end of sequence comes first."""
    ends = [tokenizer.get(f"{name}_token_id") for name in ("eos", "eot", "eom")]
    types = tokenizer["token_type"]
    ends += [
        token
        for token, text in enumerate(tokenizer["tokens"])
        if text in END_OF_GENERATION and (not types or types[token] == CONTROL)
    ]
    config: dict[str, Any] = {"eos_token_id": list(dict.fromkeys(end for end in ends if end is not None))}
    for key, name in (("bos_token_id", "bos_token_id"), ("padding_token_id", "pad_token_id")):
        if key in tokenizer:
            config[name] = tokenizer[key]
    for key, name in _SAMPLING.items():
        value = metadata.get(f"general.sampling.{key}")
        if isinstance(value, int | float):
            config[name] = value
    return config
