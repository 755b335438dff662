"""Neighbouring deltas of the same text or call, joined: many tokens at once are one piece for the client."""

from collections.abc import Sequence
from itertools import groupby

from ninfer_jax.types import Delta, TextDelta, ToolCallDelta


def merge(deltas: Sequence[Delta]) -> tuple[Delta, ...]:
    """The same text and calls in as few deltas as their order allows."""
    if len(deltas) < 2:
        return tuple(deltas)
    return tuple(_join(list(run)) for _, run in groupby(deltas, key=_place))


def _place(delta: Delta) -> str | int:
    return delta.channel if isinstance(delta, TextDelta) else delta.index


def _join(run: list[Delta]) -> Delta:
    first = run[0]
    if len(run) == 1:
        return first
    if isinstance(first, TextDelta):
        return TextDelta(first.channel, "".join(d.text for d in run if isinstance(d, TextDelta)))
    pieces = [d.arguments for d in run if isinstance(d, ToolCallDelta)]
    return ToolCallDelta(first.index, first.name, "".join(pieces))
