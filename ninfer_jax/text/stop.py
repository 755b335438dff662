"""Stop strings: the text before the earliest match, holding back only what may still become one.

Knuth-Morris-Pratt (1977) for each stop string, side by side. A state is how much of each has been seen;
the text held back is what the longest of them spells, the longest suffix of the input that begins a stop
string. Looking ahead is therefore free of side effects, and a stop string costs only as much as was ever
matched of it, however long it is.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

State: TypeAlias = tuple[int, ...]


class Scan(NamedTuple):
    """Result of one step: text that became certain, the next state, and the stop string that ended it."""

    text: str
    state: State
    match: str | None


class StopMatcher:
    """States are shared by any number of scans.

    The first stop string to be complete wins; of several complete at the same character, the longest
    (it starts first).
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ValueError("a stop string is empty")
        self._patterns = [_Pattern(stop) for stop in stops]
        self._first = re.compile(
            "[" + "".join(re.escape(stop[0]) for stop in stops) + "]" if stops else "(?!)"
        )
        self.start: State = (0,) * len(stops)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def held(self, state: State) -> str:
        """The text that ``state`` holds back; to be shown when nothing more comes."""
        length = max(state, default=0)
        return self._patterns[state.index(length)].text[:length] if length else ""

    def scan(self, state: State, text: str) -> Scan:
        if state == self.start and not self._first.search(text):
            return Scan(text, state, None)
        held = self.held(state)
        patterns = self._patterns
        seen = list(state)
        for index, char in enumerate(text, 1):
            found = 0
            for number, pattern in enumerate(patterns):
                seen[number] = pattern.advance(seen[number], char)
                if seen[number] == pattern.length:
                    found = max(found, pattern.length)
            if found:
                all_text = held + text[:index]
                cut = len(all_text) - found
                return Scan(all_text[:cut], self.start, all_text[cut:])
        all_text = held + text
        return Scan(all_text[: len(all_text) - max(seen)], tuple(seen), None)


class _Pattern:
    """``borders[n - 1]`` is the longest proper prefix of the first n characters that also ends them;
    known as far as the pattern was ever matched."""

    __slots__ = ("borders", "length", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.length = len(text)
        self.borders = [0]

    def advance(self, seen: int, char: str) -> int:
        """Characters matched after ``char``; the caller stops at a full match."""
        text, borders = self.text, self.borders
        while seen and text[seen] != char:
            seen = borders[seen - 1]
        if text[seen] != char:
            return 0
        if seen == len(borders):
            border = borders[-1]
            while border and text[seen] != text[border]:
                border = borders[border - 1]
            borders.append(border + (text[seen] == text[border]))
        return seen + 1
