"""A place in text that arrives in pieces, for parsers written as generators.

Each method is a generator that yields when it needs more input; the owner pushes text and resumes. What a
method looks at again after a yield is bounded, so reading stays linear however the input is cut.
"""

from collections.abc import Generator

MAX_NAME = 256
"""A longer function or parameter name is not a name."""

SPACE = " \t\r\n"


class Cursor:
    """Input that arrives in pieces, and the raw text of the region being read."""

    __slots__ = ("_raw", "_recorded", "closed", "pos", "text")

    def __init__(self) -> None:
        self.text = ""
        self.pos = 0
        self.closed = False
        self._raw: list[str] = []
        self._recorded = 0  # everything before this index of text is in _raw or was never wanted

    def push(self, text: str) -> None:
        self._record()
        self.text = self.text[self.pos :] + text
        self.pos = self._recorded = 0

    def start_region(self) -> None:
        self._raw.clear()
        self._recorded = self.pos

    def take_raw(self) -> str:
        """The region's text up to here."""
        self._record()
        raw = "".join(self._raw)
        self._raw.clear()
        return raw

    def _record(self) -> None:
        if self.pos > self._recorded:
            self._raw.append(self.text[self._recorded : self.pos])
            self._recorded = self.pos

    def skip_space(self) -> Generator[None, None, bool]:
        """Move to the next word; False at the end of the input."""
        while True:
            text, pos, end = self.text, self.pos, len(self.text)
            while pos < end and text[pos] in SPACE:
                pos += 1
            self.pos = pos
            if pos < end:
                return True
            if self.closed:
                return False
            yield

    def accept(self, *literals: str) -> Generator[None, None, str | None]:
        """Consume the literal that stands here, waiting while it is undecided."""
        while True:
            for literal in literals:
                if self.text.startswith(literal, self.pos):
                    self.pos += len(literal)
                    return literal
            left = self.text[self.pos : self.pos + MAX_NAME]
            if self.closed or not any(literal.startswith(left) for literal in literals):
                return None
            yield

    def name(self) -> Generator[None, None, str | None]:
        """Consume ``NAME>``; None, consuming nothing, if that is not what stands here."""
        while True:
            left = self.text[self.pos : self.pos + MAX_NAME + 1]
            length = next((i for i, char in enumerate(left) if char in "<>\n"), -1)
            if length >= 0:
                if left[length] != ">" or not length:
                    return None
                self.pos += length + 1
                return left[:length]
            if self.closed or len(left) > MAX_NAME:
                return None
            yield
