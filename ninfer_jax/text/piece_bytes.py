"""How vocabularies spell bytes: GPT-2's byte-level alphabet, and sentencepiece's marked spaces."""

from functools import cache

SPACE_MARK = "\u2581"


@cache
def byte_alphabet() -> dict[str, int]:
    """GPT-2's byte-level alphabet: printable character -> byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(b): b for b in printable}
    others = (b for b in range(256) if b not in set(printable))
    alphabet |= {chr(256 + n): b for n, b in enumerate(others)}
    return alphabet


def byte_level_bytes(piece: str) -> bytes:
    """The bytes that a byte-level piece spells."""
    alphabet = byte_alphabet()
    try:
        return bytes([alphabet[c] for c in piece])
    except KeyError:  # a piece that is not in the alphabet stands for its own text
        return piece.encode()


def metaspace_bytes(piece: str) -> bytes:
    """The bytes of a piece that marks spaces, or that is one byte in the form ``<0x0A>``."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    return piece.replace(SPACE_MARK, " ").encode()
