"""Small arithmetic over ``Engine.stats()``, a tree of numbers whose leaves an engine may lack."""

from collections.abc import Mapping
from typing import Any


def number(source: Any, *path: str) -> float:
    """``source[a][b]`` as a number; 0 where this engine has no such figure."""
    for name in path:
        source = source.get(name) if isinstance(source, Mapping) else None
    return source if isinstance(source, int | float) else 0


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """``after - before`` of nested counters; what ``before`` lacks counts as 0."""
    return {
        name: difference(before.get(name, {}), value)
        if isinstance(value, Mapping)
        else value - before.get(name, 0)
        for name, value in after.items()
    }


def per(value: float, count: float) -> float | None:
    """``value / count``, or None when there was nothing to divide by."""
    return value / count if count else None


def total(counters: Mapping[str, Any]) -> float:
    """The sum of all leaves."""
    return sum(total(value) if isinstance(value, Mapping) else value for value in counters.values())
