"""Tokenising a rendered conversation turn by turn.

An added token is cut out of the text before anything else happens, so the ids of the text in front of
it and from it on are independent. Splitting there is exact, gives every turn boundary its token
position for nothing, and lets a resent history come out of a cache instead of the tokenizer.
"""

import re
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from threading import Lock

from ninfer_jax.text.tokenizer import Tokenizer

CACHE_CHARS = 8 << 20
"""Text kept tokenised, over all conversations, each segment charged ``_OVERHEAD`` more."""

_OVERHEAD = 100


@dataclass(frozen=True, slots=True)
class EncodedText:
    """``starts[i]`` is the character offset of segment i, ``positions[i]`` the tokens before it."""

    token_ids: tuple[int, ...]
    segments: tuple[str, ...]
    starts: tuple[int, ...]
    positions: tuple[int, ...]


class SegmentEncoder:
    """Splits at each of ``boundaries`` (added tokens), encodes what is new. Safe in several threads."""

    def __init__(self, tokenizer: Tokenizer, boundaries: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        longest_first = sorted(boundaries, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if boundaries else None
        self._cache: OrderedDict[str, array[int]] = OrderedDict()
        self._cached_chars = 0
        self._lock = Lock()

    def encode(self, text: str) -> EncodedText:
        """Ids equal to the tokenizer's own for the whole text."""
        cuts = {match.start() for match in self._pattern.finditer(text)} if self._pattern else set()
        starts = sorted({0} | cuts)
        segments = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
        pieces = [self._segment(segment) for segment in segments]
        positions = list(accumulate(map(len, pieces), initial=0))[:-1]
        return EncodedText(
            tuple(chain.from_iterable(pieces)), tuple(segments), tuple(starts), tuple(positions)
        )

    def position_of(self, encoded: EncodedText, offset: int) -> int | None:
        """Tokens before character ``offset``, if the text so far is an exact token prefix of the whole."""
        index = bisect_right(encoded.starts, offset) - 1
        inside = offset - encoded.starts[index]
        if not inside:
            return encoded.positions[index]
        head = self._segment(encoded.segments[index][:inside])
        start = encoded.positions[index]
        return start + len(head) if tuple(head) == encoded.token_ids[start : start + len(head)] else None

    def _segment(self, segment: str) -> "array[int]":
        with self._lock:
            known = self._cache.get(segment)
            if known is not None:
                self._cache.move_to_end(segment)
                return known
        ids = array("I", self._tokenizer.encode(segment))
        with self._lock:
            if segment not in self._cache:
                self._cached_chars += len(segment) + _OVERHEAD
            self._cache[segment] = ids
            while self._cached_chars > CACHE_CHARS:
                oldest, _ = self._cache.popitem(last=False)
                self._cached_chars -= len(oldest) + _OVERHEAD
        return ids
