"""Stop strings: the text before the earliest match, holding back only what may still become one.

An Aho-Corasick automaton (Aho and Corasick, 1975) over the stop strings. Its state is one integer, and
the text held back is exactly the string that the state spells: the longest suffix of the input that
begins some stop string. Looking ahead is therefore free of side effects.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Scan(NamedTuple):
    """Result of one step: text that became certain, the next state, and the stop string that ended it."""

    text: str
    state: int
    match: str | None


class StopMatcher:
    """Immutable after construction; states are shared by any number of scans.

    The first stop string to be complete wins; of several complete at the same character, the longest
    (it starts first).
    """

    START = 0

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ValueError("a stop string is empty")
        self._goto: list[dict[str, int]] = [{}]
        self._spelled: list[tuple[str, int]] = [("", 0)]  # a stop string and how much of it
        self._match: list[str | None] = [None]
        for stop in stops:
            self._insert(stop)
        self._fail = [0] * len(self._goto)
        self._link()

    def __bool__(self) -> bool:
        return len(self._goto) > 1

    def held(self, state: int) -> str:
        """The text that ``state`` holds back; to be shown when nothing more comes."""
        stop, length = self._spelled[state]
        return stop[:length]

    def scan(self, state: int, text: str) -> Scan:
        goto, fail, match = self._goto, self._fail, self._match
        held = self.held(state)
        for index, char in enumerate(text):
            while char not in goto[state] and state:
                state = fail[state]
            state = goto[state].get(char, 0)
            found = match[state]
            if found is not None:
                seen = held + text[: index + 1]
                return Scan(seen[: len(seen) - len(found)], self.START, found)
        seen = held + text
        return Scan(seen[: len(seen) - self._spelled[state][1]], state, None)

    def _insert(self, stop: str) -> None:
        state = 0
        for length, char in enumerate(stop, 1):
            if char not in self._goto[state]:
                self._goto[state][char] = len(self._goto)
                self._goto.append({})
                self._spelled.append((stop, length))
                self._match.append(None)
            state = self._goto[state][char]
        self._match[state] = stop

    def _link(self) -> None:
        """Breadth first: a state's failure link is shallower, so its own match is already final."""
        queue = deque(self._goto[0].values())
        while queue:
            state = queue.popleft()
            for char, target in self._goto[state].items():
                queue.append(target)
                fallback = self._fail[state]
                while char not in self._goto[fallback] and fallback:
                    fallback = self._fail[fallback]
                self._fail[target] = self._goto[fallback].get(char, 0)
                if self._match[target] is None:
                    self._match[target] = self._match[self._fail[target]]
