"""Whether a deployment fits a device, how large its KV pool may be, and what to lower where it does not."""

from collections.abc import Iterator
from dataclasses import replace

from ninfer_jax.config import PAGE_SIZE, EngineConfig, WeightFormat
from ninfer_jax.engine.device_memory import HEADROOM_BYTES, MemoryBudget
from ninfer_jax.engine.ledger import Deployment, Ledger, make_ledger
from ninfer_jax.errors import ConfigError
from ninfer_jax.observe.sizes import binary_size

FORMATS: tuple[WeightFormat, ...] = ("f32", "bf16", "int8")
"""From the widest to the narrowest."""

SMALLEST_CHUNK = 16


def with_largest_kv_pool(deployment: Deployment, budget: MemoryBudget) -> Deployment:
    """``--kv-capacity auto``: all memory but :data:`HEADROOM_BYTES`, and no less than one context."""
    ledger = make_ledger(deployment, runtime=budget.runtime)
    largest = ledger.largest_kv_capacity(budget.memory - HEADROOM_BYTES)
    return deployment.with_settings(kv_capacity=max(deployment.config.max_context, largest))


def check_fits(deployment: Deployment, budget: MemoryBudget) -> Ledger:
    """The ledger. Raises ConfigError with its figures and what to lower when there is less memory."""
    ledger = make_ledger(deployment, runtime=budget.runtime)
    if ledger.total <= budget.memory:
        return ledger
    choices = list(remedies(deployment, budget))
    advice = (
        f"one of these would make it fit: {', '.join(f'{flag} {value}' for flag, value in choices)}"
        if choices
        else "no setting alone makes it fit: lower several, or serve a smaller model"
    )
    parts = ", ".join(f"{name} {binary_size(size)}" for name, size in ledger.entries())
    raise ConfigError(
        f"{budget.name} has {binary_size(budget.memory)} available, {binary_size(ledger.total)} are needed "
        f"({parts}); {advice}",
        field=choices[0][0] if choices else None,
    )


def remedies(deployment: Deployment, budget: MemoryBudget) -> Iterator[tuple[str, str]]:
    """Flags with values, each of which would do alone; those that cost least quality come first."""
    config = deployment.config
    largest = make_ledger(deployment, runtime=budget.runtime).largest_kv_capacity(budget.memory)

    def fits(changed: Deployment) -> bool:
        return make_ledger(changed, runtime=budget.runtime).total <= budget.memory

    if config.cache_layout == "paged" and largest >= config.max_context:
        yield "--kv-capacity", str(largest)
    elif context := _largest_context(config, largest):
        pool = "" if config.cache_layout == "contiguous" else f" with --kv-capacity {context}"
        yield "--max-context", f"{context}{pool}"
    for count in range(config.max_concurrency - 1, 0, -1):
        if fits(deployment.with_settings(max_concurrency=count)):
            yield "--max-concurrency", str(count)
            break
    chunk = config.prefill_chunk // 2
    while chunk >= SMALLEST_CHUNK:
        if fits(deployment.with_settings(prefill_chunk=chunk)):
            yield "--prefill-chunk", str(chunk)
            break
        chunk //= 2
    for weights in FORMATS[FORMATS.index(deployment.weights) + 1 :]:
        if fits(replace(deployment, weights=weights)):
            yield "--weights", weights
            break


def _largest_context(config: EngineConfig, kv_capacity: int) -> int:
    """Tokens of one sequence, in whole pages, where the pool may have ``kv_capacity``."""
    lanes = config.max_concurrency if config.cache_layout == "contiguous" else 1
    return min(config.max_context, kv_capacity // lanes) // PAGE_SIZE * PAGE_SIZE
