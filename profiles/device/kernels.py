"""The second section: every kernel against its reference at the models' shapes, and how fast it is."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import jax

from profiles.device import attention_kernels, delta_kernels, product_kernels
from profiles.device.kernel import Kernel, compile_in, measure
from profiles.device.report import Row
from profiles.device.sizes import TINY, TRUE, models
from profiles.device.steps import Limits, Rows, Settings, Step

PROGRAM_SECONDS = 3e-3
"""What a program of many calls should take at least: a hundred times what launching it costs."""
MAX_CALLS = 400
COMPILING_SHARE = 0.8
"""Of the time that is left, what compiling a family may take; what is ready by then is still measured."""
ASSUMED = Limits(bandwidth=2e12, operations=5e14)
"""To choose a number of calls, where nothing was measured."""


def steps(settings: Settings) -> Sequence[Step]:
    """A step a family: its programs are compiled together and then timed, when nothing else runs."""
    on_cpu = jax.default_backend() == "cpu"
    return [
        Step(name, partial(_run, settings, make))
        for name, make in families(settings.rehearse, on_cpu).items()
    ]


def families(tiny: bool, interpret: bool) -> dict[str, Callable[[], list[Kernel]]]:
    """Kernels by family, the dearest of a decode round first. Tiny models of both kinds have the same
    attention and delta rule: one is enough."""
    grid, configs = TINY if tiny else TRUE, models(tiny=tiny)
    dense, sparse = configs["27B"], configs["35B"]
    products, experts = product_kernels.product_kernels, product_kernels.expert_kernels
    found: dict[str, Callable[[], list[Kernel]]] = {
        "products bf16": partial(products, dense, grid, "bf16"),
        "attention 27B": partial(attention_kernels.kernels, "27B", dense, grid, interpret=interpret),
        "delta rule 27B": partial(delta_kernels.kernels, "27B", dense, grid, interpret=interpret),
        "experts bf16": partial(experts, sparse, grid, "bf16", interpret=interpret),
        "products int8": partial(products, dense, grid, "int8"),
        "attention 35B": partial(attention_kernels.kernels, "35B", sparse, grid, interpret=interpret),
        "delta rule 35B": partial(delta_kernels.kernels, "35B", sparse, grid, interpret=interpret),
        "experts int8": partial(experts, sparse, grid, "int8", interpret=interpret),
    }
    return {name: make for name, make in found.items() if not (tiny and name.endswith(" 35B"))}


def call_count(kernel: Kernel, settings: Settings) -> int:
    """Calls in one timed program: so many that launching it does not show."""
    if settings.rehearse:
        return 2
    least = (settings.limits or ASSUMED).seconds(kernel.nbytes, kernel.operations) * kernel.calls
    return max(2, min(MAX_CALLS, round(PROGRAM_SECONDS / least)))


def _run(settings: Settings, make: Callable[[], list[Kernel]]) -> Rows:
    kernels = make()
    pool = ThreadPoolExecutor(os.cpu_count() or 1, "compile")
    compiled = [compile_in(pool, kernel, call_count(kernel, settings)) for kernel in kernels]
    coming = [program for one in compiled for program in one.programs.values()]
    wait(coming, timeout=max(0.0, COMPILING_SHARE * settings.seconds_left()))
    pool.shutdown(wait=False, cancel_futures=True)
    for one in compiled:
        if settings.seconds_left() <= 0 or not one.is_ready:
            note = "no time left" if one.is_ready else "no time left to compile it"
            yield Row(settings.section, one.kernel.name, "skipped", note=note)
            continue
        yield from measure(settings.section, one, settings.limits)
