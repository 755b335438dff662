"""Assembly: from a loaded model and a configuration to a warm engine. Server and library share it."""

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import jax

from ninfer_jax.artifact.assemble import no_progress
from ninfer_jax.artifact.loader import LoadedModel, activation_dtype, load
from ninfer_jax.cache import (
    ContiguousCache,
    KVCache,
    PageCache,
    PrefixPolicy,
    RootOnlyPolicy,
    Storage,
    WholePagePolicy,
)
from ninfer_jax.config import EngineConfig, WeightFormat
from ninfer_jax.engine.compilation_cache import enable_compilation_cache
from ninfer_jax.engine.device_memory import present_budget
from ninfer_jax.engine.fit import check_fits
from ninfer_jax.engine.heap import return_freed_memory
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.engine.huge_pages import use_huge_pages
from ninfer_jax.engine.ledger import Deployment, page_bytes
from ninfer_jax.engine.observer import EngineObserver
from ninfer_jax.engine.programs import ProgramSpec
from ninfer_jax.engine.runner import DeviceRunner
from ninfer_jax.engine.sampling import SamplingPipeline
from ninfer_jax.engine.shapes import ShapeLadder
from ninfer_jax.engine.state import EngineState, LaneTable, allocate
from ninfer_jax.engine.warmup import Progress, compile_programs
from ninfer_jax.errors import ConfigError
from ninfer_jax.kernels.cpu import is_available
from ninfer_jax.models.base import LayerKind, ModelConfig, Weights
from ninfer_jax.types import ModelInfo

logger = logging.getLogger(__name__)


def load_checked(
    path: str | Path,
    settings: Callable[[ModelConfig], EngineConfig],
    *,
    weights: WeightFormat | None = None,
    groups: Collection[str] = (),
    progress: Progress | None = None,
) -> LoadedModel:
    """Load a model, with these ``groups`` of weights beside it, that its ``settings`` leave room for;
    ConfigError before anything is uploaded."""

    def before_upload(
        model: ModelConfig, specs: Weights, weight_format: WeightFormat, group_specs: Mapping[str, Weights]
    ) -> None:
        config = settings(model)
        check_context(model, config)
        activation = activation_dtype(weight_format)
        check_fits(Deployment(model, specs, config, weight_format, activation, group_specs), present_budget())

    enable_compilation_cache()  # loading compiles too
    return load(
        path,
        weights=weights,
        groups=groups,
        progress=progress or no_progress,
        before_upload=before_upload,
    )


def build_engine(
    model: LoadedModel,
    config: EngineConfig,
    *,
    observer: EngineObserver | None = None,
    on_failure: Callable[[BaseException], None] | None = None,
    progress: Progress | None = None,
) -> HostEngine:
    """Allocate state and caches, compile every program, start the engine thread.

    ``progress`` follows the compilation. Raises ConfigError for what this model cannot be asked.
    """
    check_context(model.config, config)
    enable_compilation_cache()
    runner, cache = build_device(model, config, progress=progress)
    return_freed_memory()
    if jax.default_backend() == "cpu":
        use_huge_pages((model.weights, runner.state))
    engine = HostEngine(
        model_info(model, config), runner, cache, config, observer=observer, on_failure=on_failure
    )
    engine.start()
    return engine


def warn_if_slow() -> None:
    """Tell who serves on a CPU without the kernels that were written for it: answers come all the same."""
    if jax.default_backend() == "cpu" and not is_available():
        logger.warning(
            "plain XLA serves for this project's CPU kernels, and slower: Numba cannot be imported, "
            "or this jaxlib's foreign-function interface is not the one they know"
        )


def build_device(
    model: LoadedModel, config: EngineConfig, *, progress: Progress | None = None
) -> tuple[DeviceRunner, KVCache]:
    """The two halves that the engine thread drives: compiled programs over device state, and pages."""
    dtype = activation_dtype(model.weight_format)
    state = allocate(model.config, config, dtype)
    cache = build_cache(model.config, config, storage(config, state))
    spec = ProgramSpec(model.architecture, model.config, SamplingPipeline(cap=config.top_k_cap))
    ladder = ShapeLadder.of(config.max_concurrency, config.prefill_chunk)
    table = LaneTable.of([None] * config.max_concurrency, config.pages_per_lane)
    programs = compile_programs(spec, model.weights, state, table, ladder, progress)
    pages, slots = config.pages_per_lane, cache.slots
    return DeviceRunner(spec, model.weights, state, programs, ladder, pages, slots), cache


def storage(config: EngineConfig, state: EngineState) -> Storage:
    """The cache's numbers, from the arrays that it will keep the books of."""
    return Storage(config.num_pages, page_bytes(state), config.max_concurrency, config.device_state_slots)


def build_cache(model: ModelConfig, config: EngineConfig, storage: Storage) -> KVCache:
    """The configured layout: a region of ``max_context`` a lane, or a shared pool of ``kv_capacity``."""
    if config.cache_layout == "contiguous":
        return ContiguousCache(storage)
    return PageCache(storage, prefix_policy(model, config))


def prefix_policy(model: ModelConfig, config: EngineConfig) -> PrefixPolicy:
    """Whole pages are a complete prefix only where every layer keeps its past in pages."""
    is_pure_attention = set(model.layer_kinds) == {LayerKind.FULL_ATTENTION}
    return WholePagePolicy() if config.prefix_reuse and is_pure_attention else RootOnlyPolicy()


def check_context(model: ModelConfig, config: EngineConfig) -> None:
    """Raise ConfigError, naming the flag, when the model or the pool is too small for the context."""
    if config.max_context > model.max_position_embeddings:
        raise ConfigError(
            f"the model has {model.max_position_embeddings} positions, {config.max_context} were asked for",
            field="--max-context",
        )
    if config.cache_layout == "paged" and config.kv_capacity < config.max_context:
        raise ConfigError(
            f"{config.kv_capacity} tokens cannot hold one request of {config.max_context}",
            field="--kv-capacity",
        )


def model_info(model: LoadedModel, config: EngineConfig) -> ModelInfo:
    return ModelInfo(
        model_id=model.identity.model_id,
        max_context=config.max_context,
        vocab_size=model.config.sample_vocab_size,
        architecture=model.config.model_type,
        num_parameters=model.num_parameters,
    )
