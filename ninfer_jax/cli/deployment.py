"""From the server's flags to a deployment; ``serve`` and ``plan`` share it, so they agree to the byte."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ninfer_jax.config import EngineConfig, WeightFormat
from ninfer_jax.engine.device_memory import MemoryBudget
from ninfer_jax.engine.fit import with_largest_kv_pool
from ninfer_jax.engine.ledger import Deployment
from ninfer_jax.models.base import ModelConfig, Weights
from ninfer_jax.server.options import ServeOptions


def engine_config(options: ServeOptions) -> EngineConfig:
    """The flags as the engine takes them. ``--kv-capacity auto`` stays at the least that serves, one
    context, until the memory is known."""
    capacity = options.kv_tokens
    return EngineConfig(
        max_context=options.max_context,
        kv_capacity=options.max_context if capacity == "auto" else capacity,
        max_concurrency=options.max_concurrency,
        max_pending_requests=options.max_pending_requests,
        pending_timeout=options.pending_timeout_ms / 1000,
        prefill_chunk=options.prefill_chunk,
        weights=options.weights,
        prefix_reuse=not options.no_prefix_reuse,
        top_k_cap=options.top_k_cap,
    )


def deployment(
    model: ModelConfig,
    specs: Weights,
    weights: WeightFormat,
    activation: np.dtype[Any],
    options: ServeOptions,
    budget: MemoryBudget,
    groups: Mapping[str, Weights] = MappingProxyType({}),
) -> Deployment:
    """What ``options`` ask for, ``auto`` resolved against ``budget``. Whether it fits is not checked."""
    config = dataclasses.replace(engine_config(options), weights=weights)
    asked = Deployment(model, specs, config, weights, activation, groups)
    return with_largest_kv_pool(asked, budget) if options.kv_tokens == "auto" else asked
