"""From a path and options to a warm engine with its text front, telling the operator what happens."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.loader import LoadedModel, activation_dtype, load
from ninfer_jax.cache_home import cache_home
from ninfer_jax.cli.deployment import deployment
from ninfer_jax.cli.ledger import memory_lines
from ninfer_jax.config import WeightFormat
from ninfer_jax.engine.build import build_engine, check_context, prefix_policy
from ninfer_jax.engine.compilation_cache import enable_compilation_cache
from ninfer_jax.engine.device_memory import present_budget
from ninfer_jax.engine.fit import check_fits
from ninfer_jax.engine.heap import return_freed_memory
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.engine.ledger import Deployment, Ledger
from ninfer_jax.engine.runner import DeviceRunner
from ninfer_jax.models.base import ModelConfig, Weights
from ninfer_jax.observe.activity import Activity
from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.observe.server_start import server_start
from ninfer_jax.observe.sizes import binary_size, short_count
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.text.frontend import Frontend

logger = logging.getLogger(__name__)


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
    logger.info("loading %s on %s", path.name, jax.devices()[0].device_kind)
    sizing = Sizing(options)
    model = load_model(path, options, sizing)
    frontend = Frontend.from_resources(
        model.resources,
        max_context=options.max_context,
        model_id=model.identity.model_id,
        find_frontiers=prefix_policy(model.config, sizing.deployment.config).reads_frontiers,
    )
    logger.info("compiling, or reading from %s what an earlier start has compiled", cache_home())
    with Activity(_compiling) as progress:
        engine = build_engine(
            model, sizing.deployment.config, observer=monitor, on_failure=on_failure, progress=progress
        )
    facts = start_facts(path, options, model, engine, sizing)
    jax.clear_caches()  # type: ignore[no-untyped-call]  # of tracing: nothing is traced again
    return_freed_memory()
    return ResidentModel(options.model_id or engine.info.model_id, engine, frontend, facts)


def load_model(path: Path, options: ServeOptions, sizing: "Sizing") -> LoadedModel:
    started = time.monotonic()
    enable_compilation_cache()  # loading compiles too
    with Activity(_loading) as progress:
        model = load(path, weights=options.weights, progress=progress, before_upload=sizing.settle)
    logger.info(
        "loaded %s: %s, %s parameters, %s weights in %s, %.1f s",
        model.identity.model_id,
        model.identity.model_type,
        short_count(model.num_parameters),
        model.weight_format,
        binary_size(model.weight_bytes),
        time.monotonic() - started,
    )
    return model


def _loading(done: int, total: int) -> str:
    return f"loading weights: {100 * done // total if total else 0}%"


def _compiling(done: int, total: int) -> str:
    """On a CPU the first program waits for the machine code of the kernels in it."""
    if not done:
        return f"compiling kernels and the first of {total} programs" if total else "preparing to compile"
    return f"compiling programs: {done} of {total} ready"


def start_facts(
    path: Path, options: ServeOptions, model: LoadedModel, engine: HostEngine, sizing: "Sizing"
) -> Mapping[str, Any]:
    """The ``server_start`` record; its ledger has the temporaries that were compiled."""
    device = jax.devices()[0]
    runner = engine.scheduler.services.executor
    assert isinstance(runner, DeviceRunner)
    ledger = replace(sizing.ledger, temporaries=runner.temporaries)
    planned = binary_size(sizing.ledger.temporaries)
    compiled = binary_size(ledger.temporaries)
    logger.info("compiled: %s of graph temporaries where %s were planned", compiled, planned)
    return server_start(
        engine.info,
        artifact=path,
        weights=model.weight_format,
        options={name: value for name, value in asdict(options).items() if name != "api_key"},
        stats=engine.stats(),
        device={"platform": device.platform, "kind": device.device_kind, "count": jax.device_count()},
        memory={
            "available_bytes": sizing.budget.memory,
            "ledger": {**asdict(ledger), "total": ledger.total},
            "device": device.memory_stats(),  # what its allocator says; None where there is no such thing
        },
    )


class Sizing:
    """Fixes the configuration when the model is known and nothing of it is on the device yet."""

    deployment: Deployment
    ledger: Ledger

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self.budget = present_budget()

    def settle(
        self, model: ModelConfig, specs: Weights, weights: WeightFormat, groups: Mapping[str, Weights]
    ) -> None:
        """Log the memory ledger. Raises ConfigError when the model or the device is too small."""
        activation = activation_dtype(weights)
        self.deployment = deployment(model, specs, weights, activation, self._options, self.budget, groups)
        check_context(model, self.deployment.config)
        self.ledger = check_fits(self.deployment, self.budget)
        config = self.deployment.config
        logger.info(
            "context %s tokens, %d at once, prefill in chunks of %s; memory of %s available on %s:",
            f"{config.max_context:,}",
            config.max_concurrency,
            f"{config.prefill_chunk:,}",
            binary_size(self.budget.memory),
            self.budget.name,
        )
        for line in memory_lines(self.ledger, self.budget.memory):
            logger.info("%s", line)
