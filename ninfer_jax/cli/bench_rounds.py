"""Our engine as a target that also tells what each decode round, and what ran before it, cost."""

from pathlib import Path
from typing import Any, NamedTuple

from ninfer_jax.cli.bench_engine import EngineTarget
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.accounting import NANOSECONDS, ClockTotals, WorkClass
from ninfer_jax.engine.observer import NullObserver


class RoundReading(NamedTuple):
    """The engine's books while a round is committed: its own time is booked at the next reading."""

    at: float
    """When its tokens came, monotonic seconds."""
    num_rows: int
    prefill_units: int
    """Since start-up, like ``totals``."""
    totals: ClockTotals

    def seconds(self, work: WorkClass) -> float:
        """Of all phases, since start-up."""
        return sum(self.totals.work[work]) * NANOSECONDS


class RoundRecorder(NullObserver):
    """Reads the engine's books at every decode round, on the engine thread."""

    def __init__(self) -> None:
        self._engine: Any = None
        self.readings: list[RoundReading] = []

    def watch(self, engine: Any) -> None:
        """From now on; ``engine`` is the one that this observes."""
        self._engine = engine

    def round(self, num_rows: int, num_tokens: int, at: float) -> None:
        if self._engine is not None:
            scheduler = self._engine.scheduler
            units = scheduler.board.book.counters.prefill_units
            self.readings.append(RoundReading(at, num_rows, units, scheduler.services.clock.totals()))


class RecordedTarget(EngineTarget):
    """``recorder`` must be the engine's observer."""

    def __init__(self, engine: Any, recorder: RoundRecorder) -> None:
        super().__init__(engine, engine.shutdown)
        self._recorder = recorder
        recorder.watch(engine)

    def readings(self) -> list[RoundReading]:
        """Those since the last call."""
        readings, self._recorder.readings = self._recorder.readings, []
        return readings


def open_recorded_engine(path: Path, config: EngineConfig) -> RecordedTarget:
    """Load a model and warm an engine; jax is imported here, in the target's own process."""
    from ninfer_jax.artifact.loader import load
    from ninfer_jax.engine.build import build_engine

    recorder = RoundRecorder()
    return RecordedTarget(
        build_engine(load(path, weights=config.weights), config, observer=recorder), recorder
    )
