"""One kernel of the project at one shape: its forms, the reference that they must equal, and what it costs.

The programs here are compiled ahead of time, so the same ones that are timed on a card can be compiled for a
card that is not there (``device_check --compile-for``).
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ninfer_jax.engine.aot import count_kernels
from profiles.device.report import Row
from profiles.device.steps import Limits, Rows, reason
from profiles.device.timing import Call, median_seconds, repeated

PALLAS, XLA = "Pallas", "XLA"


@dataclass(frozen=True)
class Kernel:
    """``make()`` gives ``(inputs, held)``, and is traced. ``forms[name]`` is a :data:`Call`; each call does
    the work ``calls`` times, on different memory. ``reference`` is a Call in float32. ``tolerance`` is for
    the largest difference over the reference's largest value; ``nbytes`` and ``operations`` are of the work
    once. ``untimed`` names forms that are only checked: Pallas' interpreter says nothing about speed.
    """

    name: str
    make: Callable[[], tuple[Any, Any]]
    forms: Mapping[str, Call]
    reference: Call
    tolerance: float
    nbytes: int
    operations: int = 0
    calls: int = 1
    untimed: tuple[str, ...] = ()


Key = tuple[str, str]
MAKE, REFERENCE = ("make", ""), ("reference", "")
RUN, COMPARE, TIME = "run", "compare", "time"
FIRST = np.int32(0)
"""The index of a call that is compared. A constant would let XLA simplify what it cannot in a model."""


def exact(call: Call, inputs: Any, held: Any, index: Any) -> tuple[Any, Any]:
    """``call`` without rounding the factors of float32 products."""
    with jax.default_matmul_precision("highest"):
        return call(inputs, held, index)


def worst_error(results: Any, expected: Any) -> jax.Array:
    """The largest relative error of any result, the updated arrays among them; NaN where anything is NaN."""
    pairs = zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True)
    return jnp.stack([_relative(*pair) for pair in pairs]).max()


def _relative(actual: jax.Array, expected: jax.Array) -> jax.Array:
    actual, expected = actual.astype(jnp.float32), expected.astype(jnp.float32)
    return jnp.max(jnp.abs(actual - expected)) / jnp.maximum(jnp.max(jnp.abs(expected)), 1e-30)


def programs(kernel: Kernel, times: int) -> Mapping[Key, Callable[..., Any]]:
    """What has to be compiled; a timed program makes ``times`` calls. The reference has a program of its own,
    so that XLA compiles each form as it does in a model."""
    found: dict[Key, Callable[..., Any]] = {
        MAKE: kernel.make,
        REFERENCE: partial(exact, kernel.reference),
    }
    for name, form in kernel.forms.items():
        found[RUN, name] = form
        found[COMPARE, name] = worst_error
        if name not in kernel.untimed:
            found[TIME, name] = partial(repeated, form, times)
    return found


def lower(kernel: Kernel, key: Key, program: Callable[..., Any], sharding: Any = None) -> Any:
    """Traced and lowered, for the device of ``sharding``."""
    donated = (1,) if key[0] in (RUN, TIME) else ()
    jitted = jax.jit(program, donate_argnums=donated, out_shardings=sharding)
    if key == MAKE:
        return jitted.lower()
    shapes = jax.eval_shape(kernel.make)
    if key[0] == COMPARE:
        calls = (kernel.forms[key[1]], kernel.reference)
        shapes = tuple(jax.eval_shape(call, *shapes, FIRST) for call in calls)
    elif key[0] != TIME:
        shapes = (*shapes, FIRST)
    struct = partial(jax.ShapeDtypeStruct, sharding=sharding)
    return jitted.lower(*jax.tree.map(lambda leaf: struct(leaf.shape, leaf.dtype), shapes))


@dataclass(frozen=True)
class Compiled:
    """A kernel with its programs, which may still be compiling. Timed ones make ``times`` calls."""

    kernel: Kernel
    times: int
    programs: Mapping[Key, Future[Any]]

    def __call__(self, key: Key, *arguments: Any) -> Any:
        """Run one program; raises what its compilation did."""
        return self.programs[key].result()(*arguments)

    @property
    def is_ready(self) -> bool:
        return all(program.done() and not program.cancelled() for program in self.programs.values())

    def launches(self, form: str) -> str:
        """How many kernels a call is, those that choose its inputs among them. Each costs microseconds."""
        count = count_kernels(self.programs[RUN, form].result().as_text())
        made = f" for {self.kernel.calls} of it" if self.kernel.calls > 1 else ""
        return f"{count} kernel{'' if count == 1 else 's'}{made}"


def compile_in(pool: ThreadPoolExecutor, kernel: Kernel, times: int) -> Compiled:
    """Traced here, one after another; compiled in threads. What cannot be traced is a failed future."""
    found: dict[Key, Future[Any]] = {}
    for key, program in programs(kernel, times).items():
        try:
            found[key] = pool.submit(lower(kernel, key, program).compile)
        except Exception as error:
            found[key] = Future()
            found[key].set_exception(error)
    return Compiled(kernel, times, found)


def measure(section: str, compiled: Compiled, limits: Limits | None) -> Rows:
    """A row a form; plain XLA's time stands beside that of the Pallas form too."""
    kernel, seconds = compiled.kernel, dict[str, float]()
    least = limits and limits.seconds(kernel.nbytes, kernel.operations)
    for name in sorted(kernel.forms, reverse=True):  # XLA first: the other row needs its time
        label = f"{kernel.name}, {name}" if len(kernel.forms) > 1 else kernel.name
        try:
            error = _error(compiled, name)
            launches = compiled.launches(name)
            if (TIME, name) in compiled.programs:
                seconds[name] = _time(compiled, name)
        except Exception as failure:
            yield Row(section, label, "FAILED", note=reason(failure))
            continue
        is_right = error <= kernel.tolerance
        yield Row(
            section,
            label,
            "ok" if is_right else "FAILED",
            value=1e6 * seconds[name] if name in seconds else None,
            unit="µs",
            limit=1e6 * least if least and name in seconds else None,
            plain=1e6 * seconds[XLA] if name == PALLAS and len(seconds) == 2 else None,
            error=error,
            tolerance=kernel.tolerance,
            nbytes=kernel.nbytes,
            operations=kernel.operations,
            note=launches if is_right else f"differs from the float32 reference; {launches}",
        )


def _error(compiled: Compiled, form: str) -> float:
    expected = compiled(REFERENCE, *compiled(MAKE), FIRST)
    results = compiled((RUN, form), *compiled(MAKE), FIRST)
    return float(compiled((COMPARE, form), results, expected))


def _time(compiled: Compiled, form: str) -> float:
    """Seconds of the work once."""
    inputs, held = compiled(MAKE)

    def run() -> Any:
        nonlocal held  # donated: each run updates what the one before it left
        out, held = compiled((TIME, form), inputs, held)
        return out, held

    return median_seconds(run) / compiled.times / compiled.kernel.calls
