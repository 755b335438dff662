"""The kernels' programs, compiled for a GPU that is not here: what does not compile fails on the card."""

import os
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ninfer_jax.engine.gpu_targets import GpuTarget, compile_only_sharding, gpu_target, prepare_environment
from ninfer_jax.observe.sizes import binary_size

LARGE_MOVE = 32 << 20


@dataclass(frozen=True, slots=True)
class Compiled:
    """One program of one kernel. ``error`` is empty where it compiled; ``temporaries`` in bytes; ``moves``
    counts copies and conversions of 32 MiB and more, which would be timed with the kernel."""

    kernel: str
    program: str
    error: str
    temporaries: int = 0
    moves: int = 0


def compile_for(name: str, *, tiny: bool = False, forms: Collection[str] = ()) -> int:
    """Print a line a program, of all ``forms`` unless some are named; 1 if any did not compile."""
    target = gpu_target(name)
    prepare_environment()
    failed = 0
    for done in compile_kernels(target, tiny, forms):
        failed += bool(done.error)
        verdict = done.error or f"{binary_size(done.temporaries)} of temporaries, {done.moves} large moves"
        print(f"{done.kernel}: {done.program}: {verdict}", flush=True)
    return 1 if failed else 0


def compile_kernels(target: GpuTarget, tiny: bool, forms: Collection[str]) -> Iterator[Compiled]:
    """Each form's programs, for ``target``; those of the reference are XLA's affair."""
    from profiles.device.kernel import RUN, TIME, lower, programs
    from profiles.device.kernels import families

    sharding = compile_only_sharding(target)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for make in families(tiny, interpret=False).values():
            for kernel in make():
                lowered = {
                    key: lower(kernel, key, program, sharding)
                    for key, program in programs(kernel, times=2).items()
                    if key[0] in (RUN, TIME) and (not forms or key[1] in forms)
                }
                futures = {key: pool.submit(one.compile) for key, one in lowered.items()}
                for key, future in futures.items():
                    yield _report(kernel.name, " ".join(key), future)


def _report(kernel: str, program: str, future: Any) -> Compiled:
    from ninfer_jax.engine.aot import large_moves
    from profiles.device.steps import reason

    try:
        compiled = future.result()
    except Exception as error:
        return Compiled(kernel, program, reason(error))
    memory = compiled.memory_analysis()
    return Compiled(
        kernel, program, "", memory.temp_size_in_bytes, len(large_moves(compiled.as_text(), LARGE_MOVE))
    )
