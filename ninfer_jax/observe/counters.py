"""The engine's counters and gauges: written by the engine thread, read by everybody as snapshots.

Counters only grow; ``/stats``, metrics and the request log are differences and renderings of these, so
they agree with each other and with the sum of the responses' usage.
"""

from dataclasses import dataclass, fields
from typing import Any

from ninfer_jax.cache import ReusePath
from ninfer_jax.types import FinishReason


@dataclass(slots=True)
class EngineCounters:
    """Monotone since start-up. Tokens unless named otherwise."""

    requests_submitted: int = 0
    requests_admitted: int = 0
    requests_failed: int = 0
    prompt_tokens: int = 0
    """Prompt tokens of admitted requests, reused ones included."""
    reused_prompt_tokens: int = 0
    computed_prefill_tokens: int = 0
    first_tokens: int = 0
    """Output tokens drawn at the end of prefill."""
    committed_decode_tokens: int = 0
    """Output tokens committed by decode rounds."""
    committed_control_tokens: int = 0
    """Output tokens appended without being drawn."""
    prefill_units: int = 0
    control_units: int = 0
    decode_rounds: int = 0
    decode_row_rounds: int = 0
    queue_timeouts: int = 0


@dataclass(slots=True)
class EngineGauges:
    """The scheduler and the cache at the end of a boundary."""

    running: int = 0
    """Admitted and not ended: prefilling + decode_ready + control_ready."""
    prefilling: int = 0
    decode_ready: int = 0
    control_ready: int = 0
    waiting: int = 0
    materializing: int = 0
    capture_pending: int = 0
    terminal_pending: int = 0
    last_selected_frontier_tokens: int = 0
    device_state_slots_occupied: int = 0
    device_main_pages_occupied: int = 0
    device_main_pages_cached: int = 0
    device_main_pages_free: int = 0
    device_main_pages_reserved: int = 0
    shared_active_references: int = 0


class StatsBook:
    """All counts in one place; ``copy`` is what a snapshot costs at every boundary."""

    def __init__(self) -> None:
        self.counters = EngineCounters()
        self.gauges = EngineGauges()
        self.selections = dict.fromkeys(ReusePath, 0)
        self.finished = dict.fromkeys(FinishReason, 0)

    def copy(self) -> "StatsBook":
        other = StatsBook.__new__(StatsBook)
        other.counters = EngineCounters(*_values(self.counters))
        other.gauges = EngineGauges(*_values(self.gauges))
        other.selections = self.selections.copy()
        other.finished = self.finished.copy()
        return other

    def render(self) -> dict[str, Any]:
        """JSON-ready: ``counters`` and ``gauges`` by name."""
        counters = _named(self.counters)
        counters |= {f"{path.value}_selections": count for path, count in self.selections.items()}
        counters["requests_finished"] = {reason.value: count for reason, count in self.finished.items()}
        return {"counters": counters, "gauges": _named(self.gauges)}


_NAMES = {cls: tuple(f.name for f in fields(cls)) for cls in (EngineCounters, EngineGauges)}


def _values(record: EngineCounters | EngineGauges) -> list[int]:
    return [getattr(record, name) for name in _NAMES[type(record)]]


def _named(record: EngineCounters | EngineGauges) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _NAMES[type(record)]}
