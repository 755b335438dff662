"""Token bytes to text, piece by piece, never half a character.

A pure step function over a small state, so that a caller may look ahead and throw the result away:
``text, pending = decode_step(pending + token_bytes)``.
"""

import codecs


def decode_step(data: bytes, *, final: bool = False) -> tuple[str, bytes]:
    """Decode UTF-8 up to the last complete character.

    Invalid bytes become U+FFFD as they are recognised; the incomplete tail (at most 3 bytes) is
    returned. ``final`` turns the tail into U+FFFD too. Concatenated results do not depend on the cuts.
    """
    text, used = codecs.utf_8_decode(data, "replace", final)
    return text, data[used:]
