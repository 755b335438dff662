"""A `tokenizers` object from the byte-level BPE that a GGUF file carries in its metadata.

The ``pre`` field names a pre-tokenizer; the expressions are those of the checkpoints' own
``tokenizer.json``. An unknown name is refused: a wrong split gives plausible, wrong ids.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from ninfer_jax.errors import CorruptModelError, UnsupportedModelError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_QWEN35 = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

QWEN35_PATTERN = _QWEN35
"""Qwen3.5 / 3.6 / 3.8: marks count as word characters, digits stand alone."""

_SPLITS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "starcoder": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "qwen35": (_QWEN35,),
}
_IGNORE_MERGES = frozenset({"llama-bpe", "llama-v3", "llama3"})
_NFC = frozenset({"qwen2", "qwen35"})

_CONTROL, _USER_DEFINED = 3, 4


def build_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """From ``tokenizer.ggml.*`` keys without that prefix: ``model``, ``pre``, ``tokens``, ``token_type``,
    ``merges``, ``add_bos_token``, ``bos_token_id``. Raises CorruptModelError, UnsupportedModelError."""
    kind = metadata.get("model")
    if kind != "gpt2":
        raise UnsupportedModelError(
            f"tokenizer.ggml.model {kind!r} is not supported (gpt2 is)", field="tokenizer.ggml.model"
        )
    pre = metadata.get("pre", "gpt-2")
    if pre not in _SPLITS:
        raise UnsupportedModelError(
            f"tokenizer.ggml.pre {pre!r} is not supported ({', '.join(sorted(_SPLITS))} are)",
            field="tokenizer.ggml.pre",
        )
    tokens = _strings(metadata, "tokens")
    tokenizer = Tokenizer(_bpe(tokens, _strings(metadata, "merges"), ignore_merges=pre in _IGNORE_MERGES))
    if pre in _NFC:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer(_SPLITS[pre])
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, tokens, metadata.get("token_type") or ())
    bos = metadata.get("bos_token_id")
    if metadata.get("add_bos_token") and isinstance(bos, int) and 0 <= bos < len(tokens):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]} $A", special_tokens=[(tokens[bos], bos)]
        )
    return tokenizer


def pre_tokenizer(patterns: Sequence[str]) -> pre_tokenizers.PreTokenizer:
    """Split by each expression in turn, then map bytes to the byte-level alphabet."""
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def _bpe(tokens: Sequence[str], merges: Sequence[str], *, ignore_merges: bool) -> models.BPE:
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    if not all(left and right for left, right in pairs):
        raise CorruptModelError("tokenizer.ggml.merges: a merge is not a pair", field="tokenizer.ggml.merges")
    vocab = {token: i for i, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise CorruptModelError("tokenizer.ggml.tokens: a token stands twice", field="tokenizer.ggml.tokens")
    try:
        return models.BPE(vocab, pairs, ignore_merges=ignore_merges)
    except Exception as error:  # the library raises bare Exception
        raise CorruptModelError(f"tokenizer.ggml.merges: {error}", field="tokenizer.ggml.merges") from error


def _add_tokens(tokenizer: Tokenizer, tokens: Sequence[str], types: Sequence[int]) -> None:
    if types and len(types) != len(tokens):
        raise CorruptModelError(
            f"tokenizer.ggml.token_type has {len(types)} entries for {len(tokens)} tokens",
            field="tokenizer.ggml.token_type",
        )
    for special, wanted in ((True, _CONTROL), (False, _USER_DEFINED)):
        chosen = [
            AddedToken(tokens[i], special=special, normalized=False)
            for i, t in enumerate(types)
            if t == wanted
        ]
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(chosen)


def _strings(metadata: Mapping[str, Any], name: str) -> list[str]:
    value = metadata.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise CorruptModelError(
            f"tokenizer.ggml.{name} is missing or not a list of strings", field=f"tokenizer.ggml.{name}"
        )
    return value
