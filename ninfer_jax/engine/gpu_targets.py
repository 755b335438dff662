"""GPUs that are not here: their datasheet figures, and compile-only devices made from them.

XLA's whole GPU compiler runs on a machine without a GPU, given a description of one (a
``GpuTargetConfigProto`` in text form). It needs the package ``jax-cuda12-plugin`` and nothing of CUDA.
"""

import importlib.util
import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from ninfer_jax.errors import ConfigError

POOL_FRACTION = 0.95
"""Of a GPU's memory, what jax's allocator takes at start-up (its own default is 0.75, less than the weights
of a model that fills the card). The rest is for the CUDA context, loaded kernels and libraries."""

AUTOTUNING_OFF = "--xla_gpu_autotune_level=0"
"""Autotuning times candidates on a device. Without it tile sizes are defaults: never read speed off them."""


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """Public datasheet figures. Sizes in bytes, ``bandwidth`` in bytes a second, ``clock`` in GHz.

    ``memory`` is what CUDA on Linux reports as the total, less than what is printed on the box.
    ``shared_memory`` is that of one multiprocessor, ``block_shared_memory`` what one block may opt in to.
    ``is_accelerated`` unlocks the instructions of exactly this architecture (sm_90a, sm_120a).
    """

    name: str
    memory: int
    bandwidth: int
    multiprocessors: int
    shared_memory: int
    block_shared_memory: int
    threads: int
    l2_cache: int
    clock: float
    capability: tuple[int, int]
    is_accelerated: bool = False

    @property
    def pool(self) -> int:
        """Bytes that jax's allocator has to give."""
        return int(self.memory * POOL_FRACTION)

    def config_text(self) -> str:
        """The GpuTargetConfigProto that XLA compiles for."""
        major, minor = self.capability
        features = " feature_extension: ACCELERATED_FEATURES" if self.is_accelerated else ""
        return f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: {self.shared_memory} shared_memory_per_block_optin: {self.block_shared_memory}
  threads_per_core_limit: {self.threads} core_count: {self.multiprocessors} fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {self.bandwidth} l2_cache_size: {self.l2_cache} clock_rate_ghz: {self.clock}
  device_memory_size: {self.memory}
  cuda_compute_capability {{ major: {major} minor: {minor}{features} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  runtime_version: "12.8.0" compile_time_toolkit_version: "12.8.0" driver_version: "13.0.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{self.name}"
"""


_HOPPER = (233_472, 232_448, 2048)
_ADA = (102_400, 101_376, 1536)
_BLACKWELL = (131_072, 101_376, 1536)
_MIB = 1 << 20

TARGETS = {
    target.name: target
    for target in (
        GpuTarget(
            "a100", 85_097_971_712, 2_039 * 10**9, 108, 167_936, 166_912, 2048, 40 * _MIB, 1.41, (8, 0)
        ),
        GpuTarget("h100", 85_520_809_984, 3_350 * 10**9, 132, *_HOPPER, 50 * _MIB, 1.98, (9, 0), True),
        GpuTarget("h200", 143_073 * _MIB, 4_800 * 10**9, 132, *_HOPPER, 50 * _MIB, 1.98, (9, 0), True),
        GpuTarget("l40s", 47_810_871_296, 864 * 10**9, 142, *_ADA, 96 * _MIB, 2.52, (8, 9)),
        GpuTarget("rtx4090", 25_393_692_672, 1_008 * 10**9, 128, *_ADA, 72 * _MIB, 2.52, (8, 9)),
        GpuTarget("rtx5090", 32_089 * _MIB, 1_792 * 10**9, 170, *_BLACKWELL, 96 * _MIB, 2.41, (12, 0), True),
    )
}


def gpu_target(name: str) -> GpuTarget:
    """Raises ConfigError listing the names."""
    target = TARGETS.get(name.lower())
    if target is None:
        raise ConfigError(f"{name!r} is not one of {', '.join(TARGETS)}", field="--gpu")
    return target


def prepare_environment(environ: MutableMapping[str, str] | None = None) -> None:
    """What jax must read before it is imported to compile for a GPU that is not here.

    Raises ConfigError when the compiler's package is not installed.
    """
    environ = os.environ if environ is None else environ
    if importlib.util.find_spec("jax_cuda12_plugin") is None:
        raise ConfigError(
            "compiling for a GPU needs the package jax-cuda12-plugin, in the version of jax: "
            'pip install "jax-cuda12-plugin==$(python -c "import jax; print(jax.__version__)")"',
            field="--compile",
        )
    environ["JAX_PLATFORMS"] = "cpu"
    environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # the plugin would ask a driver that may not be there
    environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # what a compile-only client writes cannot be read
    environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # it calls arguments beyond 80% of a card an error, and goes on
    environ["XLA_FLAGS"] = f"{environ.get('XLA_FLAGS', '')} {AUTOTUNING_OFF}".strip()


def compile_only_sharding(target: GpuTarget) -> Any:
    """A sharding on one compile-only device of this kind, for the arguments of ``lower``."""
    from jax.experimental import topologies
    from jax.sharding import SingleDeviceSharding

    topology = topologies.get_topology_desc(
        platform="cuda", topology_name=target.name, topology="1x1x1", target_config=target.config_text()
    )
    return SingleDeviceSharding(topology.devices[0])
