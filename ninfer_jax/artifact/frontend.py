"""Frontend resources: which files travel with a model, and what they say about templates and stops."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ninfer_jax.artifact.gguf_text import TOKENIZER as GGUF_TOKENIZER
from ninfer_jax.errors import CorruptModelError

TOKENIZERS = ("tokenizer.json", "tokenizer.model")
"""One of these makes a checkpoint folder servable."""

RESOURCES = (
    *TOKENIZERS,
    GGUF_TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
"""Everything that is carried, byte for byte, where it is there."""


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """What the checkpoint asks for. None where it does not say; the server's own default then holds."""

    eos_token_ids: tuple[int, ...]
    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


@dataclass(frozen=True, slots=True)
class Frontend:
    """Resources by file name. Text code builds tokenizer and template from them."""

    resources: Mapping[str, bytes]

    def json(self, name: str) -> dict[str, Any]:
        """A JSON resource, empty where it is absent. Raises CorruptModelError naming the file."""
        if name not in self.resources:
            return {}
        try:
            value = json.loads(self.resources[name])
        except ValueError as error:
            raise CorruptModelError(f"{name} is not JSON: {error}", field=name) from error
        if not isinstance(value, dict):
            raise CorruptModelError(f"{name} is not a JSON object", field=name)
        return value

    @property
    def chat_template(self) -> str | None:
        """``chat_template.jinja``, or the older places: ``chat_template.json``, ``tokenizer_config.json``.

        Of several named templates the one called ``default`` is taken.
        """
        if "chat_template.jinja" in self.resources:
            try:
                return self.resources["chat_template.jinja"].decode()
            except UnicodeDecodeError as error:
                raise CorruptModelError("chat_template.jinja is not UTF-8", field="chat_template") from error
        for name in ("chat_template.json", "tokenizer_config.json"):
            template = self.json(name).get("chat_template")
            if isinstance(template, list):
                named = {
                    entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)
                }
                template = named.get("default")
            if isinstance(template, str):
                return template
        return None

    def generation(self, config: Mapping[str, Any]) -> GenerationDefaults:
        """From ``generation_config.json``; end tokens fall back to the model's ``config.json``."""
        declared = self.json("generation_config.json")
        ends = declared.get("eos_token_id")
        for section in (config, config.get("text_config") or {}):
            ends = section.get("eos_token_id") if ends is None else ends
        if ends is None:
            ends = self._named_end()

        def number(key: str) -> float | None:
            value = declared.get(key)
            if value is None:
                return None
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise CorruptModelError(f"generation_config.json: {key} is {value!r}", field=key)
            return value

        top_k = number("top_k")
        do_sample = declared.get("do_sample")
        return GenerationDefaults(
            eos_token_ids=_token_ids(ends),
            do_sample=do_sample if isinstance(do_sample, bool) else None,
            temperature=number("temperature"),
            top_k=None if top_k is None else int(top_k),
            top_p=number("top_p"),
            min_p=number("min_p"),
            presence_penalty=number("presence_penalty"),
            frequency_penalty=number("frequency_penalty"),
        )

    def _named_end(self) -> int | None:
        """The id of ``tokenizer_config.json``'s ``eos_token``, where ``tokenizer.json`` lists it."""
        end = self.json("tokenizer_config.json").get("eos_token")
        content = end.get("content") if isinstance(end, dict) else end
        added = self.json("tokenizer.json").get("added_tokens") or []
        return next((token["id"] for token in added if token.get("content") == content), None)


def _token_ids(ends: Any) -> tuple[int, ...]:
    tokens = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in tokens):
        raise CorruptModelError(f"eos_token_id is {ends!r}, not token ids", field="eos_token_id")
    return tuple(dict.fromkeys(tokens))
