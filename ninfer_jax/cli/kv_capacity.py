"""``--kv-capacity auto``: the most KV tokens that the memory left after loading can hold."""

import os

import jax

from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.errors import ConfigError
from ninfer_jax.models.base import LayerKind, ModelConfig

HEADROOM_BYTES = 1 << 30
"""Left free for what compiled programs allocate while they run."""


def largest_kv_capacity(model: ModelConfig, itemsize: int, *, minimum: int) -> int:
    """Tokens, in whole pages. Raises ConfigError when not even ``minimum`` fits."""
    layers = model.layer_kinds.count(LayerKind.FULL_ATTENTION)
    bytes_per_token = 2 * layers * model.num_kv_heads * model.head_dim * itemsize
    free = available_bytes() - HEADROOM_BYTES
    tokens = max(0, free // bytes_per_token) // PAGE_SIZE * PAGE_SIZE
    if tokens < minimum:
        raise ConfigError(
            f"{tokens} tokens of KV fit into the memory that is left, --max-context needs {minimum}",
            field="--kv-capacity",
        )
    return tokens


def available_bytes() -> int:
    """What the device can still allocate; on CPU, what the machine can without swapping."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
