"""Benchmark targets over a fake device."""

import threading
from typing import TypeVar

from ninfer_jax.cli.bench_engine import EngineTarget

Target = TypeVar("Target", bound=EngineTarget)
GATHER_SECONDS = 60.0


def gathered(target: Target) -> Target:
    """``target``, whose fake device waits in each run until all jobs of it are submitted: then rows
    run together on any machine, and what is measured of that exists."""
    engine = target._engine
    post, run = engine.thread.post, target.run
    num_missing = 0
    is_complete = threading.Event()

    def counted(request):
        nonlocal num_missing
        post(request)
        num_missing -= 1
        if num_missing == 0:
            is_complete.set()

    def start(jobs):
        nonlocal num_missing
        num_missing = len(jobs)
        is_complete.clear()
        return run(jobs)

    engine.thread.post, target.run = counted, start
    engine.scheduler.services.executor.during_wait = lambda: is_complete.wait(GATHER_SECONDS)
    return target
