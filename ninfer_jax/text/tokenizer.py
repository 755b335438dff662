"""One tokenizer interface over the `tokenizers` library and sentencepiece.

A model's frontend resources decide which one: ``tokenizer.json``, ``gguf_tokenizer.json`` (the
``tokenizer.ggml.*`` metadata of a GGUF file, prefix removed, as one JSON object), or ``tokenizer.model``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import sentencepiece
import tokenizers

from ninfer_jax.errors import CorruptModelError, UnsupportedModelError
from ninfer_jax.text.gguf_tokenizer import build_tokenizer
from ninfer_jax.text.piece_bytes import byte_level_bytes, metaspace_bytes
from ninfer_jax.text.token_bound import token_bound

TOKENIZER_JSON = "tokenizer.json"
GGUF_TOKENIZER = "gguf_tokenizer.json"
SENTENCEPIECE_MODEL = "tokenizer.model"

VISIBLE_MARKERS = frozenset(
    {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"}
)
"""Added tokens that are output text. Some checkpoints flag them as special; the parsers need to see them."""


class Tokenizer(Protocol):
    """Text to ids and back. Ids run from 0 to ``vocab_size - 1``; a model may have more (padded) rows."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Control tokens: parsed from rendered templates, never shown in output."""
        ...

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        """Ids of ``text``; added tokens spelled in it become their ids.

        ``add_special`` adds what the checkpoint puts around plain text (often a BOS). Rendered chat
        templates spell those themselves.
        """
        ...

    def least_tokens(self, text: str) -> int:
        """A lower bound on ``len(encode(text))`` at a fraction of its cost; 0 where none can be shown."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of a whole sequence; invalid UTF-8 becomes U+FFFD."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes this token stands for inside a sequence; empty for ids that stand for nothing."""
        ...

    def id_of(self, token: str) -> int | None: ...

    def boundary_tokens(self, source: str) -> tuple[str, ...]:
        """Special tokens spelled in ``source`` at whose start any text may be cut and encoded apart."""
        ...


class HFTokenizer:
    """A `tokenizers.Tokenizer` whose tokens are byte-level or metaspace-with-byte-fallback pieces."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        added = tokenizer.get_added_tokens_decoder()
        self._added = {i: token.content.encode() for i, token in added.items()}
        self._special = frozenset(
            i for i, token in added.items() if token.special and token.content not in VISIBLE_MARKERS
        )
        self._vocab_size = max(tokenizer.get_vocab_size(with_added_tokens=True), 1 + max(added, default=-1))
        config = json.loads(tokenizer.to_str())
        self._bound = token_bound(config)
        decoder: dict[str, Any] = config.get("decoder") or {}
        decoders = [decoder, *decoder.get("decoders", ())]
        self._piece_bytes = _piece_decoder(decoders)
        self._strips_space = _strips_space(decoders)
        self._bytes: list[bytes | None] = [None] * self._vocab_size

    @classmethod
    def from_json(cls, data: bytes) -> "HFTokenizer":
        try:
            tokenizer = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises bare Exception
            raise CorruptModelError(f"{TOKENIZER_JSON}: {error}", field=TOKENIZER_JSON) from error
        return cls(tokenizer)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def special_ids(self) -> frozenset[int]:
        return self._special

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        ids: list[int] = self._tokenizer.encode(_well_formed(text), add_special_tokens=add_special).ids
        return ids

    def least_tokens(self, text: str) -> int:
        return self._bound.least_tokens(_well_formed(text)) if self._bound else 0

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        hidden = self._special if skip_special else frozenset()
        text = b"".join(self.token_bytes(i) for i in ids if i not in hidden).decode(errors="replace")
        return text.removeprefix(" ") if self._strips_space else text

    def token_bytes(self, token_id: int) -> bytes:
        if not 0 <= token_id < self._vocab_size:
            return b""
        known = self._bytes[token_id]
        if known is None:
            known = self._bytes[token_id] = self._compute_bytes(token_id)
        return known

    def _compute_bytes(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id]
        piece = self._tokenizer.id_to_token(token_id)
        return b"" if piece is None else self._piece_bytes(piece)

    def id_of(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def boundary_tokens(self, source: str) -> tuple[str, ...]:
        added = list(self._tokenizer.get_added_tokens_decoder().values())
        plain = [t.content for t in added if t.special and not (t.normalized or t.lstrip or t.single_word)]
        return tuple(
            token
            for token in plain
            if token in source and not any(_reaches_into(other.content, token) for other in added)
        )


class SentencePieceTokenizer:
    """A sentencepiece model file. Control and unknown pieces are special."""

    def __init__(self, model: bytes, *, add_bos: bool = True) -> None:
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise CorruptModelError(f"{SENTENCEPIECE_MODEL}: {error}", field=SENTENCEPIECE_MODEL) from error
        self._add_bos = add_bos and self._model.bos_id() >= 0
        self._special = frozenset(
            i for i in range(self.vocab_size) if self._model.is_control(i) or self._model.is_unknown(i)
        )
        # Sentencepiece never parses control pieces out of text, templates need exactly that.
        self._parts = _literal_splitter({self._model.id_to_piece(i): i for i in self._special})

    @property
    def vocab_size(self) -> int:
        return int(self._model.vocab_size())

    @property
    def special_ids(self) -> frozenset[int]:
        return self._special

    def encode(self, text: str, *, add_special: bool = False) -> list[int]:
        ids = [self._model.bos_id()] if add_special and self._add_bos else []
        for part in self._parts(_well_formed(text)):
            ids += [part] if isinstance(part, int) else self._model.encode(part)
        return ids

    def least_tokens(self, text: str) -> int:
        return 0  # its normaliser may drop white space of any length

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        hidden = self._special if skip_special else frozenset()
        text = b"".join(self.token_bytes(i) for i in ids if i not in hidden).decode(errors="replace")
        return text.removeprefix(" ")

    def token_bytes(self, token_id: int) -> bytes:
        if not 0 <= token_id < self.vocab_size:
            return b""
        piece = self._model.id_to_piece(token_id)
        return piece.encode() if token_id in self._special else metaspace_bytes(piece)

    def id_of(self, token: str) -> int | None:
        found = int(self._model.piece_to_id(token))
        return found if self._model.id_to_piece(found) == token else None

    def boundary_tokens(self, source: str) -> tuple[str, ...]:
        return tuple(piece for i in self._special if (piece := self._model.id_to_piece(i)) in source)


def load_tokenizer(resources: Mapping[str, bytes]) -> Tokenizer:
    """The tokenizer of a checkpoint. Raises CorruptModelError, UnsupportedModelError."""
    if TOKENIZER_JSON in resources:
        return HFTokenizer.from_json(resources[TOKENIZER_JSON])
    if GGUF_TOKENIZER in resources:
        return HFTokenizer(build_tokenizer(json.loads(resources[GGUF_TOKENIZER])))
    if SENTENCEPIECE_MODEL in resources:
        return SentencePieceTokenizer(resources[SENTENCEPIECE_MODEL])
    raise CorruptModelError(
        f"the model has no tokenizer: none of {TOKENIZER_JSON}, {SENTENCEPIECE_MODEL} is there",
        field=TOKENIZER_JSON,
    )


def _piece_decoder(decoders: Sequence[Mapping[str, Any]]) -> Callable[[str], bytes]:
    kinds = {decoder.get("type") for decoder in decoders}
    if "ByteLevel" in kinds:
        return byte_level_bytes
    if kinds & {"Metaspace", "ByteFallback", "Replace"}:
        return metaspace_bytes
    raise UnsupportedModelError(
        f"{TOKENIZER_JSON}: decoders {sorted(map(str, kinds))} are neither byte-level nor metaspace",
        field=TOKENIZER_JSON,
    )


def _strips_space(decoders: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a whole text loses the space that its first word was given."""
    return any(
        (decoder.get("type") == "Strip" and decoder.get("start", 0) > 0 and decoder.get("content") == " ")
        or (decoder.get("type") == "Metaspace" and decoder.get("prepend_scheme") != "never")
        for decoder in decoders
    )


def _literal_splitter(literals: Mapping[str, int]) -> Callable[[str], list[str | int]]:
    if not literals:
        return lambda text: [text] if text else []
    longest_first = sorted(literals, key=len, reverse=True)
    pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
    return lambda text: [literals.get(part, part) for part in pattern.split(text) if part]


def _reaches_into(other: str, token: str) -> bool:
    """Whether an occurrence of ``other`` can begin before one of ``token`` and swallow its start."""
    return token in other[1:] or any(token.startswith(other[at:]) for at in range(1, len(other)))


def _well_formed(text: str) -> str:
    """Lone surrogates (a client's broken ``\\ud800`` escape) cannot be encoded; show them as U+FFFD."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
