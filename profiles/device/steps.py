"""What a section is made of, and the loop that runs it: one step's failure is a row, and the rest goes on."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from profiles.device.report import Row

Rows: TypeAlias = Iterator[Row]

FACTS, LIMITS, COMPILE_CACHE = "facts.json", "limits.json", "xla"
"""In the folder of a run: what the first section leaves for the others, and the programs compiled so far.
That cache is empty when a run begins, so that start-up times mean the same each time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What this device was measured to do: bytes a second, bf16 floating-point operations a second."""

    bandwidth: float
    operations: float

    def seconds(self, nbytes: float, operations: float = 0.0) -> float:
        """No call that moves and computes this much can be faster."""
        return max(nbytes / self.bandwidth, operations / self.operations)


@dataclass(frozen=True, slots=True)
class Settings:
    """``deadline`` (monotonic seconds) is when steps stop being started. ``folder`` is for files of this run.
    ``limits`` is None where they could not be measured."""

    section: str
    rehearse: bool
    deadline: float
    folder: Path
    limits: Limits | None = None

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a section that stands for itself. ``run`` yields its rows as they are known."""

    name: str
    run: Callable[[], Rows]


class DeviceLostError(Exception):
    """After a failure not even an addition works: only a new process has a device again."""


class Journal:
    """A file of JSON lines that survives the process that writes it, however that ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, event: str, **members: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"event": event, **members}) + "\n")

    def row(self, row: Row) -> None:
        self.write("row", **asdict(row))


def run_steps(
    settings: Settings,
    steps: Sequence[Step],
    journal: Journal,
    is_alive: Callable[[], bool] = lambda: True,
) -> None:
    """Run what there is time for. Raises DeviceLostError when a step's failure took the device with it."""
    journal.write("plan", steps=[step.name for step in steps])
    for step in steps:
        if settings.seconds_left() <= 0:
            journal.row(Row(settings.section, step.name, "skipped", note="no time left"))
            continue
        journal.write("begin", step=step.name)
        has_failed = False
        try:
            for row in step.run():
                journal.row(row)
                has_failed |= row.status == "FAILED"
        except Exception as error:
            journal.row(Row(settings.section, step.name, "FAILED", note=reason(error)))
            has_failed = True
        journal.write("end", step=step.name)
        if has_failed and not is_alive():
            raise DeviceLostError(step.name)
    journal.write("done")


def reason(error: BaseException) -> str:
    """One line that tells what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200] if lines else 'no message'}"
