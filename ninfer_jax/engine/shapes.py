"""The ladder of shapes: every program that can ever run, known before the first request.

Decode takes its exact batch, 1 to C rows. Prefill takes one row, padded to a bucket; a chunk that lies
badly between two buckets is run as several.
"""

from dataclasses import dataclass

PROGRAMS = ("prefill", "decode", "bind_lane", "copy_image")
"""Names of all programs; the first two have one for each size of the ladder, the last is there only with
slots for checkpoints."""

PREFILL_BUCKETS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens of one prefill program. Each costs start-up time (trace, compile or cache read)."""

CALL_COST = 16
"""What one more prefill call costs, in tokens: reading every weight once, whatever the bucket."""


@dataclass(frozen=True, slots=True)
class ShapeLadder:
    """``decode_batches`` and ``prefill_buckets``, ascending."""

    decode_batches: tuple[int, ...]
    prefill_buckets: tuple[int, ...]

    @classmethod
    def of(cls, max_concurrency: int, prefill_chunk: int) -> "ShapeLadder":
        """Every batch up to ``max_concurrency``; buckets up to the first that holds ``prefill_chunk``."""
        if max_concurrency < 1 or prefill_chunk < 1:
            raise ValueError(f"a ladder needs positive sizes, got {max_concurrency} and {prefill_chunk}")
        buckets = [b for b in PREFILL_BUCKETS if b < prefill_chunk]
        return cls(tuple(range(1, max_concurrency + 1)), (*buckets, prefill_chunk))

    def split(self, length: int) -> tuple[int, ...]:
        """Buckets to run ``length`` tokens in, in order; all are full but the last.

        The cheapest sequence when a bucket costs its size plus :data:`CALL_COST`: large buckets while
        they are full, then whichever is less, one padded bucket or a full smaller one and the rest.
        """
        if length < 1:
            raise ValueError(f"nothing to split: {length} tokens")
        largest = self.prefill_buckets[-1]
        whole, rest = divmod(length, largest)
        return (largest,) * whole + self._split_rest(rest)

    def _split_rest(self, length: int) -> tuple[int, ...]:
        if length == 0:
            return ()
        padded = next(bucket for bucket in self.prefill_buckets if bucket >= length)
        full = [bucket for bucket in self.prefill_buckets if bucket < length]
        if not full:
            return (padded,)
        pieces = (full[-1], *self._split_rest(length - full[-1]))
        return min((padded,), pieces, key=lambda plan: sum(plan) + CALL_COST * len(plan))
