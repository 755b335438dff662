"""Splitting decoded text into the reasoning and the content channel at ``<think>`` markers.

A pure step function over a small state, so that previews cost nothing to undo. The rules:

- Reasoning is open from the start when the prompt ended with ``<think>``; otherwise a model may open it
  itself, as the first thing in its answer. After a close it may open it again, as the next thing.
- Inside visible text ``<think>`` and ``</think>`` are text: people talk about these tags.
- A second marker of the same kind right after the first is swallowed.
- Newlines after an opening and after a closing marker belong to the marker.

Nothing but a possible marker, and white space that may stand before one, is ever held back.
"""

from enum import IntEnum
from typing import NamedTuple

from ninfer_jax.types import Channel

OPEN = "<think>"
CLOSE = "</think>"

MAX_LEADING_SPACE = 64
"""White space in front of a marker; more is an answer that happens to be blank."""

_SPACE = " \t\r\n"


class Mode(IntEnum):
    CONTENT_START = 0  # nothing seen yet: a model may open reasoning
    REASONING_START = 1  # opened, nothing in it yet
    REASONING = 2
    CONTENT_AFTER_CLOSE = 3
    CONTENT = 4

    @property
    def in_reasoning(self) -> bool:
        return self is Mode.REASONING or self is Mode.REASONING_START


class SplitState(NamedTuple):
    mode: Mode
    held: str = ""


class Segment(NamedTuple):
    """Text of one channel. An empty content segment says that reasoning has been closed."""

    channel: Channel
    text: str


def split_step(state: SplitState, text: str) -> tuple[list[Segment], SplitState]:
    """Take more text; return what became certain. Cut points never change the concatenated result."""
    mode, held = state
    if mode is Mode.CONTENT:
        return ([Segment("content", text)] if text else []), state
    segments: list[Segment] = []
    rest: str | None = held + text
    while rest is not None:
        if mode is Mode.CONTENT:
            if rest:
                segments.append(Segment("content", rest))
            held, rest = "", None
        elif mode is Mode.REASONING:
            mode, held, rest = _inside(rest, segments)
        else:
            mode, held, rest = _at_start(mode, rest, segments)
    return segments, SplitState(mode, held)


def split_finish(state: SplitState) -> list[Segment]:
    """What was held back, when no more text comes."""
    mode, held = state
    if mode is Mode.REASONING_START or mode is Mode.CONTENT_AFTER_CLOSE:
        held = held.lstrip("\n")
    if not held:
        return []
    return [Segment("reasoning" if mode.in_reasoning else "content", held)]


def partial_suffix(text: str, marker: str) -> int:
    """Length of the longest suffix of ``text`` that is a proper prefix of ``marker``."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0


def _inside(text: str, segments: list[Segment]) -> tuple[Mode, str, str | None]:
    at = text.find(CLOSE)
    if at < 0:
        keep = len(text) - partial_suffix(text, CLOSE)
        if keep:
            segments.append(Segment("reasoning", text[:keep]))
        return Mode.REASONING, text[keep:], None
    if at:
        segments.append(Segment("reasoning", text[:at]))
    segments.append(Segment("content", ""))
    return Mode.CONTENT_AFTER_CLOSE, "", text[at + len(CLOSE) :]


def _at_start(mode: Mode, text: str, segments: list[Segment]) -> tuple[Mode, str, str | None]:
    """At the start of a channel: decide whether a marker comes before any text."""
    word = text.lstrip(_SPACE)
    space = text[: len(text) - len(word)]
    if len(space) <= MAX_LEADING_SPACE:
        if word.startswith(OPEN):
            return Mode.REASONING_START, "", word[len(OPEN) :]
        closes = mode is not Mode.CONTENT_START
        if closes and word.startswith(CLOSE):
            segments.append(Segment("content", ""))
            return Mode.CONTENT_AFTER_CLOSE, "", word[len(CLOSE) :]
        if OPEN.startswith(word) or (closes and CLOSE.startswith(word)):
            return mode, text, None
    if mode is not Mode.CONTENT_START:
        text = space.lstrip("\n") + word
    return (Mode.REASONING if mode is Mode.REASONING_START else Mode.CONTENT), "", text
