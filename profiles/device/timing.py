"""Timing on a device that runs behind the host: a program repeats a call many times, and is timed whole."""

import statistics
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

Call: TypeAlias = Callable[[Any, Any, Any], tuple[Any, Any]]
"""``(inputs, held, index) -> (out, held)``: ``held`` is what a kernel updates in place, ``index`` counts
calls, so that each can read other memory than the one before it."""

SAMPLES = 9
SAMPLE_SECONDS = 0.5
"""No more samples are taken after this long."""


def repeated(call: Call, times: int, inputs: Any, held: Any) -> tuple[Any, Any]:
    """``call`` with index 0 .. times - 1, one after another; returns the last results."""

    def step(index: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        # Without the barrier XLA lifts out of the loop what does not depend on the index: converted weights.
        kept, index = jax.lax.optimization_barrier((inputs, index))  # type: ignore[no-untyped-call]
        return call(kept, carry[1], index)

    out, _ = jax.eval_shape(call, inputs, held, jnp.int32(0))
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), out)
    result: tuple[Any, Any] = jax.lax.fori_loop(0, times, step, (empty, held))
    return result


def median_seconds(run: Callable[[], Any], samples: int = SAMPLES) -> float:
    """Of ``run`` and waiting for what it returns; one uncounted run first."""
    timed(run)
    times: list[float] = []
    while len(times) < samples and sum(times) < SAMPLE_SECONDS:
        times.append(timed(run))
    return statistics.median(times)


def timed(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(run())  # type: ignore[no-untyped-call]
    return time.perf_counter() - begin
