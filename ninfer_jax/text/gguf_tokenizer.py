"""A `tokenizers` object from the vocabulary that a GGUF file carries in its metadata.

Two kinds: byte-level BPE (``gpt2``), whose ``pre`` field names a pre-tokenizer, and sentencepiece BPE
(``llama``), whose merges follow from the piece scores. The expressions are those of the checkpoints' own
``tokenizer.json``. An unknown kind is refused: a wrong split gives plausible, wrong ids.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ninfer_jax.errors import CorruptModelError, UnsupportedModelError
from ninfer_jax.text.piece_bytes import SPACE_MARK

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL

QWEN35_PATTERN = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen3.5 / 3.6 / 3.8: marks count as word characters, digits stand alone."""

_SPLITS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "starcoder": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "qwen35": (QWEN35_PATTERN,),
}
_LLAMA3_NAMES = frozenset({"llama-bpe", "llama-v3", "llama3"})
"""Whole words are looked up before merging, and a BOS is the default."""

_NFC = frozenset({"qwen2", "deepseek-r1-qwen", "qwen35"})

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """From ``tokenizer.ggml.*`` keys without that prefix: ``model``, ``pre``, ``tokens``, ``token_type``,
    ``merges`` or ``scores``, ``add_bos_token``, ``bos_token_id``, ``add_space_prefix``.

    Raises CorruptModelError, UnsupportedModelError.
    """
    kind, pre = metadata.get("model"), metadata.get("pre", "gpt-2")
    if kind not in ("gpt2", "llama"):
        raise _unsupported("model", kind, ("gpt2", "llama"))
    tokens = _strings(metadata, "tokens")
    if kind == "llama":
        tokenizer, default_bos = _sentencepiece(tokens, metadata), True
    elif pre in _SPLITS:
        tokenizer, default_bos = _byte_level(tokens, metadata, pre), pre in _LLAMA3_NAMES
    else:
        raise _unsupported("pre", pre, sorted(_SPLITS))
    _add_tokens(tokenizer, tokens, metadata.get("token_type") or ())
    bos = metadata.get("bos_token_id")
    if metadata.get("add_bos_token", default_bos) and isinstance(bos, int) and 0 <= bos < len(tokens):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return tokenizer


def _byte_level(tokens: Sequence[str], metadata: Mapping[str, Any], pre: str) -> Tokenizer:
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in _strings(metadata, "merges"))]
    if not all(left and right for left, right in merges):
        raise _corrupt("merges", "a merge is not a pair")
    tokenizer = Tokenizer(_bpe(tokens, merges, ignore_merges=pre in _LLAMA3_NAMES))
    if pre in _NFC:
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _SPLITS[pre]]
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, alphabet])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(tokens: Sequence[str], metadata: Mapping[str, Any]) -> Tokenizer:
    """Sentencepiece merges the neighbours whose joined piece scores best; as a merge list that is every
    split of every piece, best score first."""
    scores = metadata.get("scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise _corrupt("scores", f"not {len(tokens)} numbers")
    ids = {token: i for i, token in enumerate(tokens)}
    merges = [
        (token[:at], token[at:])
        for _, token in sorted(zip(scores, tokens, strict=True), key=lambda entry: -entry[0])
        for at in sorted(
            range(1, len(token)), key=lambda at: (ids.get(token[:at], 0), ids.get(token[at:], 0))
        )
        if token[:at] in ids and token[at:] in ids
    ]
    types = metadata.get("token_type") or ()
    unknown = next((tokens[i] for i, kind in enumerate(types) if kind == _UNKNOWN), None)
    tokenizer = Tokenizer(_bpe(tokens, merges, byte_fallback=True, fuse_unk=True, unk_token=unknown))
    has_prefix = metadata.get("add_space_prefix", True)
    prefix = [normalizers.Prepend(SPACE_MARK)] if has_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE_MARK)])
    strip = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _bpe(tokens: Sequence[str], merges: list[tuple[str, str]], **options: Any) -> models.BPE:
    vocab = {token: i for i, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise _corrupt("tokens", "a token stands twice")
    try:
        return models.BPE(vocab, merges, **options)
    except Exception as error:  # the library raises bare Exception
        raise _corrupt("merges", str(error)) from error


def _add_tokens(tokenizer: Tokenizer, tokens: Sequence[str], types: Sequence[int]) -> None:
    if types and len(types) != len(tokens):
        raise _corrupt("token_type", f"{len(types)} entries for {len(tokens)} tokens")
    for special, wanted in ((True, (_CONTROL, _UNKNOWN)), (False, (_USER_DEFINED,))):
        chosen = [
            AddedToken(tokens[i], special=special, normalized=False)
            for i, kind in enumerate(types)
            if kind in wanted
        ]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(chosen)


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    value = metadata.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise _corrupt(name, "missing or not a list of strings")
    return value


def _corrupt(name: str, problem: str) -> CorruptModelError:
    return CorruptModelError(f"tokenizer.ggml.{name}: {problem}", field=f"tokenizer.ggml.{name}")


def _unsupported(name: str, value: object, known: Sequence[str]) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"tokenizer.ggml.{name} {value!r} is not supported ({', '.join(known)} are)",
        field=f"tokenizer.ggml.{name}",
    )
