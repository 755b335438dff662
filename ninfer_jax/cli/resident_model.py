"""From a path and options to a warm engine with its text front, telling the operator what happens."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.loader import LoadedModel, activation_dtype, load
from ninfer_jax.cli.kv_capacity import largest_kv_capacity
from ninfer_jax.cli.sizes import binary_size, short_count
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.build import build_engine
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.observe.console import show_transient
from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.observe.server_start import server_start
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.text.frontend import Frontend

logger = logging.getLogger(__name__)

REPORT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ResidentModel:
    """A warm engine, the text side that belongs to it, and what the log says of both."""

    model_id: str
    engine: HostEngine
    frontend: Frontend
    server_start: Mapping[str, Any]


def load_resident(
    path: Path | None,
    options: ServeOptions,
    monitor: ServeMonitor,
    on_failure: Callable[[BaseException], None],
) -> ResidentModel:
    """Load ``path`` (None: the demo model), compile every program, start the engine thread.

    ``on_failure`` is called on that thread when the engine as a whole has failed.
    """
    path = path or demo_model()
    started = time.monotonic()
    device = jax.devices()[0]
    logger.info("loading %s on %s", path.name, device.device_kind)
    model = load(path, weights=options.weights, progress=Reporter("loading weights"))
    frontend = Frontend.from_resources(
        model.resources, max_context=options.max_context, model_id=model.identity.model_id
    )
    logger.info(
        "loaded %s: %s, %s parameters, %s weights in %s, %.1f s",
        model.identity.model_id,
        model.identity.model_type,
        short_count(model.num_parameters),
        model.weight_format,
        binary_size(model.weight_bytes),
        time.monotonic() - started,
    )
    config = engine_config(model, options)
    engine = build_engine(
        model, config, observer=monitor, on_failure=on_failure, progress=Reporter("compiling programs")
    )
    stats = engine.stats()
    logger.info(
        "context %d tokens, %d requests at once, KV pool %d tokens in %s",
        config.max_context,
        config.max_concurrency,
        config.kv_capacity,
        binary_size(stats["capacity"]["kv_bytes"]),
    )
    public = {name: value for name, value in asdict(options).items() if name != "api_key"}
    facts = server_start(
        engine.info,
        artifact=path,
        weights=model.weight_format,
        options=public,
        stats=stats,
        device={"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()},
        memory={
            "weights_bytes": model.weight_bytes,
            "kv_bytes": stats["capacity"]["kv_bytes"],
            "device": device.memory_stats(),  # what its allocator says; None where there is no such thing
        },
    )
    return ResidentModel(options.model_id or engine.info.model_id, engine, frontend, facts)


def engine_config(model: LoadedModel, options: ServeOptions) -> EngineConfig:
    """The flags as the engine takes them; ``auto`` becomes a number here."""
    capacity = options.kv_tokens
    if capacity == "auto":
        itemsize = activation_dtype(model.weight_format).itemsize
        capacity = largest_kv_capacity(model.config, itemsize, minimum=options.max_context)
    return EngineConfig(
        max_context=options.max_context,
        kv_capacity=capacity,
        max_concurrency=options.max_concurrency,
        max_pending_requests=options.max_pending_requests,
        pending_timeout=options.pending_timeout_ms / 1000,
        prefill_chunk=options.prefill_chunk,
        weights=options.weights,
        prefix_reuse=not options.no_prefix_reuse,
        top_k_cap=options.top_k_cap,
    )


class Reporter:
    """A progress callback: a transient line on a terminal, else a record every ``REPORT_SECONDS``."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + REPORT_SECONDS

    def __call__(self, done: int, total: int) -> None:
        text = f"{self._what}: {100 * done // total}%"
        now = time.monotonic()
        if not show_transient(text if done < total else "") and now >= self._next and done < total:
            self._next = now + REPORT_SECONDS
            logger.info("%s", text)
