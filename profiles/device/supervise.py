"""Each section in a process of its own, so that neither a crash nor a hang of one ends the others."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles.device.report import Row

GRACE = 10.0
"""Seconds beyond its budget that a section has to finish the step it is in."""
MODULE = "profiles.device.child"


@dataclass
class Outcome:
    """What a child's journal says."""

    planned: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    is_done: bool = False

    @property
    def running(self) -> str | None:
        """The step that was begun and not ended."""
        return next((step for step in self.begun if step not in self.ended), None)

    @classmethod
    def read(cls, journal: Path) -> "Outcome":
        outcome = cls()
        for line in journal.read_text().splitlines() if journal.exists() else ():
            event: dict[str, Any] = json.loads(line)
            match event.pop("event"):
                case "plan":
                    outcome.planned = event["steps"]
                case "begin":
                    outcome.begun.append(event["step"])
                case "end":
                    outcome.ended.append(event["step"])
                case "row":
                    outcome.rows.append(Row(**event))
                case "done":
                    outcome.is_done = True
        return outcome


def supervise(
    section: str,
    seconds: float,
    folder: Path,
    arguments: Sequence[str] = (),
    *,
    module: str = MODULE,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """Rows of ``section``, whatever happens to its process. One that dies is started again without the steps
    that had begun; one that is still at it ``GRACE`` after its time is killed."""
    deadline = time.monotonic() + seconds
    rows: list[Row] = []
    skip: list[str] = []
    attempt = 0
    while True:
        journal, log = (folder / f"{section}-{attempt}{kind}" for kind in (".jsonl", ".log"))
        left = max(0.0, deadline - time.monotonic())
        command = [sys.executable, "-m", module, "--section", section, "--seconds", f"{left:.1f}"]
        command += ["--journal", str(journal), *arguments, *(f"--skip={name}" for name in skip)]
        code = _run_child(command, log, left + GRACE)
        outcome = Outcome.read(journal)
        rows += outcome.rows
        if outcome.is_done:
            return rows
        if code is None:
            why = f"not done {seconds + GRACE:.0f} s after the section began; --seconds gives it more"
        else:
            why = f"the process ended (exit {code}): {_last_line(log)}"
        running = outcome.running
        if running is not None or not outcome.begun:
            rows.append(Row(section, running or "start", "FAILED", note=why))
            tell(f"{section}: {running or 'start'}: {why}")
        skip += outcome.begun
        if code is None or not outcome.begun or time.monotonic() > deadline:
            left_over = [name for name in outcome.planned if name not in skip]
            return rows + [Row(section, name, "skipped", note="no time left") for name in left_over]
        attempt += 1


def _run_child(command: Sequence[str], log: Path, seconds: float) -> int | None:
    """The exit code, None where it had to be killed. What it started ends with it."""
    with log.open("w") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):  # the usual case: nobody is left
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
