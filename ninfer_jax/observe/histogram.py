"""A histogram that costs the engine thread a bisection and two additions."""

from bisect import bisect_left
from collections.abc import Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Bounds for latencies, from a small model's round to a long generation."""

TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)


class Histogram:
    """Written by one thread, read by any: a reader may miss the newest value, never see a wrong sum of
    buckets, because the count is the sum of the buckets it read."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """(cumulative counts by upper bound, the last ``+Inf``; sum), in Prometheus' form."""
        total = 0
        cumulative: list[tuple[str, float]] = []
        labels = [*(f"{float(bound):g}" for bound in self._bounds), "+Inf"]
        for label, count in zip(labels, list(self._counts), strict=True):
            total += count
            cumulative.append((label, float(total)))
        return cumulative, self._sum
