"""The first section: which device this is, and the two limits that everything after it is held against."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ninfer_jax.engine.device_memory import present_budget
from profiles.device.report import Row
from profiles.device.steps import FACTS, LIMITS, Limits, Rows, Settings, Step
from profiles.device.timing import median_seconds, repeated

GIB = 1 << 30
BIG = {"copied": 2 * GIB, "side": 8192}
TINY = {"copied": 1 << 22, "side": 256}


def steps(settings: Settings) -> Sequence[Step]:
    found = [Step("device", partial(_describe, settings))]
    if settings.rehearse or jax.default_backend() != "cpu":
        return [*found, Step("limits", partial(_measure, settings))]
    return [*found, Step("accelerator", partial(_refuse, settings))]


def _refuse(settings: Settings) -> Rows:
    note = "jax sees a CPU only (is jax[cuda12] installed?); --rehearse runs everything at tiny sizes"
    yield Row(settings.section, "accelerator", "FAILED", note=note)


def device_facts() -> dict[str, Any]:
    device = jax.local_devices()[0]
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "capability": str(getattr(device, "compute_capability", "")),
        "runtime": " ".join(device.client.platform_version.split()),
        "jax": jax.__version__,
    }


def _describe(settings: Settings) -> Rows:
    facts = device_facts()
    (settings.folder / FACTS).write_text(json.dumps(facts))
    kind = f"{facts['device']} {facts['capability']}".strip()
    yield Row(settings.section, kind, "measured", note=f"jax {facts['jax']}, {facts['runtime']}")
    memory = present_budget().memory / GIB
    yield Row(settings.section, "memory for this process", "measured", memory, "GiB")
    yield Row(settings.section, "launch of an empty program", "measured", _launch_microseconds(), "µs")


def _measure(settings: Settings) -> Rows:
    sizes = TINY if settings.rehearse else BIG
    copied, side = sizes["copied"], sizes["side"]
    times = 10
    numbers = jnp.zeros(copied // 4, jnp.float32)
    copying = 2 * copied / _per_call(_copy, times, (), numbers)
    yield Row(settings.section, "copy", "measured", copying / 1e9, "GB/s", nbytes=2 * copied)
    numbers = jnp.ones(copied // 4, jnp.float32)
    reading = copied / _per_call(_read, times, (numbers,), ())
    yield Row(settings.section, "read", "measured", reading / 1e9, "GB/s", nbytes=copied)
    del numbers
    matrix = jnp.full((side, side), 0.5, jnp.bfloat16)
    computing = 2 * side**3 / _per_call(_multiply, times, (matrix,), ())
    name = f"bf16 product of {side:,} squared"
    yield Row(settings.section, name, "measured", computing / 1e12, "TFLOP/s", operations=2 * side**3)
    limits = Limits(bandwidth=max(copying, reading), operations=computing)
    (settings.folder / LIMITS).write_text(json.dumps(asdict(limits)))


def _per_call(call: Any, times: int, inputs: Any, held: Any) -> float:
    program = jax.jit(partial(repeated, call, times), donate_argnums=1)

    def run() -> Any:
        nonlocal held
        out, held = program(inputs, held)
        return out, held

    return median_seconds(run) / times


def _copy(inputs: tuple[()], held: jax.Array, index: jax.Array) -> tuple[Any, jax.Array]:
    """Read and write every byte."""
    return (), held + index.astype(held.dtype)


def _read(inputs: tuple[jax.Array], held: tuple[()], index: jax.Array) -> tuple[Any, Any]:
    return jnp.sum(inputs[0] + index.astype(jnp.float32)), held


def _multiply(inputs: tuple[jax.Array], held: tuple[()], index: jax.Array) -> tuple[Any, Any]:
    return jnp.dot(inputs[0], inputs[0], preferred_element_type=jnp.bfloat16), held


@jax.jit
def _add_one(x: jax.Array) -> jax.Array:
    return x + 1


def _launch_microseconds() -> float:
    x = jnp.zeros(8)
    return 1e6 * median_seconds(lambda: _add_one(x), 200)
