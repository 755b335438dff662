"""The fewest tokens that a text can be, so that a hopeless prompt is refused without tokenising it.

The bound must never refuse a prompt that fits. So it exists only for tokenizers that lose nothing but bytes
their vocabulary lacks: no stripping, no normal form that shrinks without limit, no unknown token in which any
length of text can vanish.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_jax.text.piece_bytes import SPACE_MARK, byte_alphabet

SHRINKING = 4
"""Times that text can shrink before it is tokenised, rounded up. NFC: 3 for Hangul, 3.5 at worst (7 bytes
that are U+0390). Metaspace: 3, since a typed U+2581 is a space."""

_NEVER_IN_UTF8 = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})


@dataclass(frozen=True, slots=True)
class TokenBound:
    """``longest`` bytes of text a token at most; bytes in ``lost`` may become no token at all."""

    longest: int
    lost: bytes = b""

    def least_tokens(self, text: str) -> int:
        data = text.encode()
        return -(-len(data.translate(None, self.lost) if self.lost else data) // self.longest)


def token_bound(config: Mapping[str, Any]) -> TokenBound | None:
    """The bound of a ``tokenizer.json``; None where none can be shown."""
    model, added = config["model"], config.get("added_tokens") or ()
    if model.get("type") != "BPE" or any(token.get("lstrip") or token.get("rstrip") for token in added):
        return None
    normalizers = _parts(config.get("normalizer"), "normalizers")
    splitters = _parts(config.get("pre_tokenizer"), "pretokenizers")
    if not (all(map(_keeps_text, normalizers)) and all(map(_only_splits, splitters))):
        return None
    kinds = {splitter["type"] for splitter in splitters}
    vocabulary = model["vocab"]
    if "ByteLevel" in kinds:
        known = {byte for char, byte in byte_alphabet().items() if char in vocabulary}
        longest = max(map(len, vocabulary), default=1)  # one character a byte
    else:
        known = {
            byte for byte in range(256) if model.get("byte_fallback") and f"<0x{byte:02X}>" in vocabulary
        }
        longest = max((len(piece.encode()) for piece in vocabulary), default=1)
    longest = max([longest, *(len(token["content"].encode()) for token in added)])
    lost = bytes(sorted(set(range(256)) - known - _NEVER_IN_UTF8))
    if not normalizers and kinds <= {"ByteLevel", "Split", "Digits"} and "ByteLevel" in kinds:
        return TokenBound(longest, lost)
    return None if lost else TokenBound(longest * SHRINKING)  # rewritten text may be lost where this is not


def _parts(component: Mapping[str, Any] | None, members: str) -> Sequence[Mapping[str, Any]]:
    if component is None:
        return ()
    parts: Sequence[Mapping[str, Any]] = (
        component[members] if component["type"] == "Sequence" else [component]
    )
    return parts


def _keeps_text(normalizer: Mapping[str, Any]) -> bool:
    match normalizer["type"]:
        case "NFC" | "Prepend":
            return True
        case "Replace":
            return bool((normalizer["pattern"].get("String"), normalizer["content"]) == (" ", SPACE_MARK))
        case _:
            return False


def _only_splits(splitter: Mapping[str, Any]) -> bool:
    match splitter["type"]:
        case "ByteLevel" | "Metaspace" | "Digits":
            return True
        case "Split":
            return bool(splitter["behavior"] != "Removed")
        case _:
            return False
