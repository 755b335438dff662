"""The part that all tool-call dialects share: where a region begins, what is held, when it is given back.

The model's ``<tool_call>`` region is either structured completely or returned as text, byte for byte.

- Strict: from the first opener to the end of the output everything must be well formed. Calls are
  therefore known only at the end; text before the opener streams at once, the region is held.
- Tolerant: each complete function is a call at once; broken wrappers and text after it do not undo it,
  and an incomplete function never is one.

An opener that no function follows is a mention of the tag: it is text, and a later region may still be
structured. White space before a successful call is dropped, before text it is kept.

Parsers are generators that yield when they need more input, so the grammar reads top to bottom. Each
character is looked at a bounded number of times, however the input is cut.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ninfer_jax.text.conversation import Tool
from ninfer_jax.text.cursor import SPACE, Cursor
from ninfer_jax.text.reasoning import partial_suffix
from ninfer_jax.types import Delta, TextDelta, ToolCallDelta

FallbackReason: TypeAlias = Literal[
    "none",
    "malformed_structure",
    "duplicate_parameter",
    "invalid_tool_name",
    "undeclared_tool",
    "trailing_content",
]

OPENER = "<tool_call>"
CLOSER = "</tool_call>"
MAX_STARTER = 16
Steps: TypeAlias = Generator[None, None, bool]


@dataclass(frozen=True, slots=True)
class Call:
    """A complete function. ``problem`` is why its identity cannot be represented, if so."""

    name: str
    arguments: str
    problem: FallbackReason = "none"
    omitted: int = 0
    mismatched: int = 0


@dataclass(slots=True)
class ParseDiagnostics:
    """Counters without any generated text."""

    marker_seen: bool = False
    calls: int = 0
    empty_arguments_omitted: int = 0
    schema_mismatches: int = 0
    fallback_reason: FallbackReason = "none"


class Malformed(Exception):
    """The region breaks the grammar here. ``mention``: before it had any structure at all."""

    def __init__(self, reason: FallbackReason = "malformed_structure", *, mention: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.mention = mention


class ToolRegionParser(ABC):
    """One channel's text in, text and calls out. Subclasses read one function of their dialect."""

    starters: Sequence[str] = (OPENER,)
    """Literals that open a region in tolerant mode; the first one opens it in strict mode."""

    def __init__(self, tools: Sequence[Tool], *, tolerant: bool = False, max_name: int = 64) -> None:
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}
        self.tolerant = tolerant
        self.max_name = max_name
        self.diagnostics = ParseDiagnostics()
        self.cursor = Cursor()
        self._gap: list[str] = []  # white space whose fate is open
        self._is_text = False  # the open region can no longer become a call
        self._out: list[Delta] = []
        self._steps = self._run()
        next(self._steps)

    def feed(self, text: str) -> list[Delta]:
        if not text:
            return []
        self.cursor.push(text)
        next(self._steps)
        if self._is_text:
            self._pass(self.cursor.take_raw())
        return self._drain()

    def finish(self) -> list[Delta]:
        self.cursor.closed = True
        next(self._steps, None)
        return self._drain()

    @abstractmethod
    def read_function(self) -> Generator[None, None, Call]:
        """Read one function, the opener already consumed. Raises Malformed."""

    def region_is_text(self) -> None:
        """For subclasses: whatever follows, the open region will be given back. It streams from here on;
        only the reason waits for the region's end, because a broken structure outranks the others."""
        self._is_text = True

    def identity_problem(self, name: str) -> FallbackReason:
        if name in self.tools:
            return "none"
        valid = len(name) <= self.max_name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
        return "undeclared_tool" if valid else "invalid_tool_name"

    def _run(self) -> Generator[None, None, None]:
        yield
        read_region = self._tolerant_region if self.tolerant else self._strict_region
        while (yield from self._content()):
            self.diagnostics.marker_seen = True
            self._is_text = False
            if not (yield from read_region()):
                yield from self._plain()
                return

    def _content(self) -> Steps:
        """Pass text on up to a region's opener; False at the end of the output."""
        cursor = self.cursor
        starters = self.starters if self.tolerant else self.starters[:1]
        opener = re.compile("|".join(starters))
        while True:
            text, pos = cursor.text, cursor.pos
            match = opener.search(text, pos)
            if match:
                found = match.start()
                self._pass(text[pos:found])
                cursor.pos = found
                cursor.start_region()
                if text.startswith(OPENER, found):
                    cursor.pos += len(OPENER)
                return True
            tail = "" if cursor.closed else text[max(pos, len(text) - MAX_STARTER) :]
            held = max(partial_suffix(tail, starter) for starter in starters) if "<" in tail else 0
            self._pass(text[pos : len(text) - held])
            cursor.pos = len(text) - held
            cursor.start_region()
            if cursor.closed:
                self._flush_gap()
                return False
            yield

    def _strict_region(self) -> Steps:
        """True when scanning goes on: the region was a mere mention. False when all that follows is text."""
        calls: list[Call] = []
        try:
            while True:
                calls.append((yield from self.read_function()))
                yield from self.cursor.skip_space()
                if not (yield from self.cursor.accept(CLOSER)):
                    raise Malformed
                if not (yield from self.cursor.skip_space()):
                    break
                if not (yield from self.cursor.accept(OPENER)):
                    raise Malformed("trailing_content")
        except Malformed as error:
            reason = error.reason
            if reason == "trailing_content":
                reason = next((c.problem for c in calls if c.problem != "none"), reason)
            self._give_back(reason)
            return error.mention and not calls
        problem = next((c.problem for c in calls if c.problem != "none"), None)
        if problem:
            self._give_back(problem)
            return False
        self.cursor.take_raw()
        self._gap.clear()
        for call in calls:
            self._emit(call)
        return True

    def _tolerant_region(self) -> Steps:
        try:
            call = yield from self.read_function()
        except Malformed as error:
            self._give_back(error.reason)
            return True
        if call.problem != "none":
            self._give_back(call.problem)
            return True
        self.cursor.take_raw()
        self._gap.clear()
        self._emit(call)
        cursor = self.cursor
        cursor.start_region()
        yield from cursor.skip_space()
        if (yield from cursor.accept(CLOSER)):
            cursor.start_region()
            yield from cursor.skip_space()
        space = cursor.take_raw()
        if cursor.pos < len(cursor.text):
            self._gap.append(space)
        return True

    def _plain(self) -> Generator[None, None, None]:
        self._is_text = False
        self._flush_gap()
        while True:
            self._text(self.cursor.text[self.cursor.pos :])
            self.cursor.pos = len(self.cursor.text)
            self.cursor.start_region()
            yield

    def _give_back(self, reason: FallbackReason) -> None:
        if self.diagnostics.fallback_reason == "none":
            self.diagnostics.fallback_reason = reason
        self._is_text = False
        self._pass(self.cursor.take_raw())

    def _pass(self, text: str) -> None:
        """Text, keeping back the white space at its end: it is dropped if a call follows."""
        word = text.rstrip(SPACE)
        if word:
            self._flush_gap()
            self._text(word)
        if len(word) < len(text):
            self._gap.append(text[len(word) :])

    def _flush_gap(self) -> None:
        self._text("".join(self._gap))
        self._gap.clear()

    def _text(self, text: str) -> None:
        if text:
            self._out.append(TextDelta("content", text))

    def _emit(self, call: Call) -> None:
        self._out.append(ToolCallDelta(self.diagnostics.calls, call.name, call.arguments))
        self.diagnostics.calls += 1
        self.diagnostics.empty_arguments_omitted += call.omitted
        self.diagnostics.schema_mismatches += call.mismatched

    def _drain(self) -> list[Delta]:
        out, self._out = self._out, []
        return out
