"""A kernel's one entry point, which XLA calls with a frame and XLA's threads with a job.

The frame's fields are 8-byte words, used here by index:

    0 struct_size  1 extensions  2 api  3 context  4 stage
    5-9   args: struct_size, extensions, count, types, pointers
    10-14 rets: struct_size, extensions, count, types, pointers

and a buffer's are 0 struct_size, 1 extensions, 2 dtype, 3 data, 4 rank, 5 dims. Imported only where Numba is.
"""

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ninfer_jax.kernels.cpu.intrinsics import as_pointer, fetch_add, symbol_address, word
from ninfer_jax.kernels.cpu.kernel import Kernel
from ninfer_jax.kernels.cpu.places import PLACES_SYMBOL, PLACES_WORDS
from ninfer_jax.kernels.cpu.tasks import (
    DONE,
    FRAME,
    Functions,
    call_helpers,
    claim,
    close_job,
    must_execute,
    open_job,
)

ARGUMENTS, RESULTS = 9, 14
"""The frame's words that point to the operands and to the results."""


def view_of(kernel: Kernel) -> Any:
    """A compiled function: a frame's address -> its operands and results as one named tuple of arrays.

    Numba wants straight-line code with literal ranks, so it is made as text.
    """
    lines = ["def view(frame):"]
    groups = [(ARGUMENTS, kernel.operands), (RESULTS, kernel.results)]
    for pointers, buffers in groups:
        for index, (name, buffer) in enumerate(buffers.items()):
            dims = "".join(f"word(dims, {axis})," for axis in range(buffer.ndim))
            lines += [
                f"    buffer = word(word(frame, {pointers}), {index})",
                "    dims = word(buffer, 5)",
                f"    {name} = carray(as_pointer(word(buffer, 3)), ({dims}), np.{buffer.dtype})",
            ]
    names = [*kernel.operands, *kernel.results]
    lines.append(f"    return Arguments({', '.join(names)})")
    scope = {"Arguments": namedtuple("Arguments", names), "carray": numba.carray, "np": np}
    scope |= {"word": word, "as_pointer": as_pointer}
    exec("\n".join(lines), scope)
    return numba.njit(scope["view"])


def entry_point(kernel: Kernel, functions: Functions, schedule: int) -> Callable[[int], int]:
    """The entry point's Python, for Numba to compile; ``schedule`` is ``ffi.thread_pool_index()``."""
    view, places = view_of(kernel), symbol_address(PLACES_SYMBOL)
    run, count, prepare, finish = functions.run, functions.count, functions.prepare, functions.finish

    @numba.njit
    def take_tasks(job: int) -> None:
        claimed = claim(job)
        while claimed >= 0:
            # The frame of the job that was claimed: the one before it in this place may have ended.
            run(claimed, view(word(job, FRAME)))
            fetch_add(job + 8 * DONE, 1)
            claimed = claim(job)

    def entry(address: int) -> int:
        if places() <= address < places() + 8 * PLACES_WORDS:
            take_tasks(address)
            return 0
        if not must_execute(address):
            return 0
        arguments = view(address)
        prepare(arguments)
        total = count(arguments)
        job = open_job(places(), address, total)
        if job == 0:
            for task in range(total):
                run(task, arguments)
        else:
            call_helpers(places(), address, job, total, schedule)
            take_tasks(job)
            close_job(job, total)
        finish(arguments)
        return 0

    return entry
