"""How the threads of XLA's pool share one call's tasks.

A *job* is one running call. Its word ``CLAIM`` packs (total, next): whoever adds one to it owns task
``next``, or learns that none is left. The calling thread announces the job, asks the pool for helpers,
and takes tasks itself until none is left, so it never waits for a helper that did not start; it waits
only for tasks that a helper has begun. A helper that starts late finds nothing, or helps the job that
has the place by then: jobs of one kernel have places of their own, so its code always fits.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np

from ninfer_jax.kernels.cpu.intrinsics import (
    as_pointer,
    call_with_pointer,
    exchange,
    fetch_add,
    load_acquire,
    set_word,
    word,
)

JOB_WORDS = 16
"""Two cache lines a job: claims and completions of different jobs do not share one."""
PLACES = 8
"""Calls of one kernel that may run at once and share threads; a ninth runs on its own thread alone."""
BUSY, CLAIM, DONE, FRAME = 0, 1, 2, 3
MAX_TASKS = 1 << 20
STAGE_EXECUTE = 3
EXTENSION_METADATA = 1
API_MAJOR, API_MINOR = 0, 1
SPINS = 2000
"""Polls of an unfinished job before the thread offers its core to others."""

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


def compile_handler(
    source: str, count: Callable[..., Any], run: Callable[..., Any], dtypes: Sequence[Any], schedule: int
) -> tuple[Any, Any]:
    """The C entry points of one kernel: (handler for XLA, helper for the pool). Keep both alive."""
    # One job place after another; the array must outlive every call, so it is never freed.
    places = np.zeros(PLACES * JOB_WORDS + JOB_WORDS, np.int64)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(places))
    first_place = int(places.ctypes.data + 127) // 128 * 128
    num_helpers = max(len(os.sched_getaffinity(0)) - 1, 0)

    @numba.njit
    def open_job(frame: int, total: int) -> int:
        """A place for this call, or 0 when it is to run alone."""
        if total < 2 or total >= MAX_TASKS or num_helpers == 0:
            return 0
        for place in range(PLACES):
            job = first_place + place * JOB_WORDS * 8
            if exchange(job + 8 * BUSY, 1) == 0:
                set_word(job, FRAME, frame)
                exchange(job + 8 * DONE, 0)
                exchange(job + 8 * CLAIM, total << 20)
                return job
        return 0

    scope: dict[str, Any] = {
        "must_execute": must_execute, "open_job": open_job, "claim": claim, "close_job": close_job,
        "fetch_add": fetch_add, "word": word, "as_pointer": as_pointer, "carray": numba.carray,
        "count": count, "run": run, "DONE": DONE, "FRAME": FRAME,
    }  # fmt: skip
    scope |= {f"dtype{number}": np.dtype(dtype).type for number, dtype in enumerate(dtypes)}
    exec(source, scope)
    scope["run_tasks"] = numba.njit(scope["run_tasks"])
    helper = numba.cfunc(numba.int64(numba.int64))(scope["helper"])
    helper_address = int(helper.address)

    @numba.njit
    def call_helpers(frame: int, job: int, total: int) -> None:
        """``XLA_FFI_ThreadPool_Schedule({size, extensions, context, task, data})`` once a helper."""
        arguments = np.empty(5, np.int64)
        arguments[0], arguments[1], arguments[2] = 40, 0, word(frame, 3)
        arguments[3], arguments[4] = helper_address, job
        function = word(word(frame, 2), schedule)
        for _ in range(min(num_helpers, total - 1)):
            call_with_pointer(function, arguments.ctypes.data)

    scope["call_helpers"] = call_helpers
    handler = numba.cfunc(numba.int64(numba.int64))(scope["handler"])
    return handler, helper
