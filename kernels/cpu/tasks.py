"""How the threads of XLA's pool share one call's tasks.

A *job* is one running call. Its word ``CLAIM`` packs (total, next): whoever adds one to it owns task
``next``, or learns that none is left. The calling thread announces the job, asks the pool for helpers,
and takes tasks itself until none is left, so it never waits for a helper that did not start; it waits
only for tasks that a helper has begun. A helper that starts late finds nothing, or helps the job that
has the place by then: jobs of one kernel have places of their own, so its code always fits.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from ninfer_jax.kernels.cpu.intrinsics import (
    as_pointer,
    call_with_pointer,
    exchange,
    fetch_add,
    load_acquire,
    set_word,
    symbol_address,
    word,
)
from ninfer_jax.kernels.cpu.places import ENTRY, JOB_WORDS, NUM_HELPERS, PLACES, PLACES_SYMBOL

BUSY, CLAIM, DONE, FRAME = 0, 1, 2, 3
MAX_TASKS = 1 << 20
STAGE_EXECUTE = 3
EXTENSION_METADATA = 1
API_MAJOR, API_MINOR = 0, 1
SPINS = 2000
"""Polls of an unfinished job before the thread offers its core to others."""


_places = symbol_address(PLACES_SYMBOL)


@numba.njit
def num_threads() -> int:
    """How many threads may work on a call's tasks."""
    return word(_places(), NUM_HELPERS) + 1


@numba.njit
def _nothing(arguments: Any) -> None:
    pass


class Functions(NamedTuple):
    """A kernel's njit functions. ``count(arguments) -> int`` says how many independent tasks a call has
    (under a million) and ``run(task, arguments)`` does one. Tasks of a call run at the same time on different
    threads, each exactly once, after ``prepare(arguments)`` and before ``finish(arguments)``."""

    count: Any
    run: Any
    prepare: Any = _nothing
    finish: Any = _nothing


_sched_yield = numba.types.ExternalFunction("sched_yield", numba.types.int32())


@numba.njit(inline="always")
def must_execute(frame: int) -> bool:
    """False for the calls that only ask or prepare; the first asks for our interface version."""
    extension = word(frame, 1)
    if extension != 0 and word(extension, 1) & 0xFFFFFFFF == EXTENSION_METADATA:
        versions = numba.carray(as_pointer(word(extension, 3) + 24), 2, np.int32)
        versions[0] = API_MAJOR
        versions[1] = API_MINOR
        return False
    return word(frame, 4) & 0xFFFFFFFF == STAGE_EXECUTE


@numba.njit
def claim(job: int) -> int:
    """The number of a task that is now ours, or -1."""
    before = fetch_add(job + 8 * CLAIM, 1)
    task = before & (MAX_TASKS - 1)
    return task if task < before >> 20 else -1


@numba.njit
def close_job(job: int, total: int) -> None:
    """Wait for the tasks that helpers began, then give the place back."""
    spins = 0
    while load_acquire(job + 8 * DONE) < total:
        spins += 1
        if spins > SPINS:
            _sched_yield()
    exchange(job + 8 * BUSY, 0)


@numba.njit
def open_job(places: int, frame: int, total: int) -> int:
    """A place for this call, or 0 when it is to run alone."""
    if total < 2 or total >= MAX_TASKS // 2 or word(places, NUM_HELPERS) == 0:
        return 0
    for place in range(PLACES):
        job = places + (1 + place) * JOB_WORDS * 8
        if exchange(job + 8 * BUSY, 1) == 0:
            set_word(job, FRAME, frame)
            exchange(job + 8 * DONE, 0)
            exchange(job + 8 * CLAIM, total << 20)
            return job
    return 0


@numba.njit
def call_helpers(places: int, frame: int, job: int, total: int, schedule: int) -> None:
    """``XLA_FFI_ThreadPool_Schedule({size, extensions, context, task, data})`` once a helper."""
    arguments = np.empty(5, np.int64)
    arguments[0], arguments[1], arguments[2] = 40, 0, word(frame, 3)
    arguments[3], arguments[4] = word(places, ENTRY), job
    function = word(word(frame, 2), schedule)
    for _ in range(min(word(places, NUM_HELPERS), total - 1)):
        call_with_pointer(function, arguments.ctypes.data)
