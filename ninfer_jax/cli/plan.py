"""``ninfer-jax plan MODEL --gpu NAME``: what a configuration needs, without a GPU and without weights."""

import argparse
import importlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_jax.cli.driver_noise import without_driver_noise
from ninfer_jax.cli.plan_programs import (
    closing_lines,
    compile_programs,
    compiled_total,
    heading,
    program_lines,
    program_names,
)
from ninfer_jax.config import WeightFormat
from ninfer_jax.engine.gpu_targets import (
    TARGETS,
    GpuTarget,
    gpu_target,
    prepare_environment,
)
from ninfer_jax.engine.shapes import PROGRAMS
from ninfer_jax.errors import ConfigError
from ninfer_jax.server.options import ServeOptions, resolve
from ninfer_jax.server.options import add_arguments as add_options

if TYPE_CHECKING:
    from ninfer_jax.engine.aot import ProgramReport
    from ninfer_jax.engine.decode_traffic import Traffic
    from ninfer_jax.engine.device_memory import MemoryBudget
    from ninfer_jax.engine.ledger import Deployment, Ledger
    from ninfer_jax.models.base import Architecture, ModelConfig

HELP = "Print the memory a configuration needs on a GPU, and the bytes a decode round moves, without either."

SIZING_FLAGS = frozenset(
    {
        "weights",
        "max-context",
        "kv-capacity",
        "max-concurrency",
        "prefill-chunk",
        "top-k-cap",
    }
)
"""Those of the server's flags that a plan depends on, ``top-k-cap`` with ``--compile``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a registered identity, or what serve would load")
    parser.add_argument("--gpu", required=True, metavar="NAME", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument(
        "--compile",
        action="store_true",
        help="compile every program for it, one after another (needs jax-cuda12-plugin; minutes)",
    )
    parser.add_argument(
        "--programs",
        type=program_names,
        default=PROGRAMS,
        metavar="NAMES",
        help=f"with --compile: only these of {','.join(PROGRAMS)}",
    )
    parser.add_argument("--layers", type=int, metavar="N", help="plan only the first N layers of the model")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_options(parser, listed=SIZING_FLAGS)
    parser.epilog = "The other flags of serve are taken too, and change nothing."


def run(args: argparse.Namespace) -> int:
    target, options = gpu_target(args.gpu), resolve(args, os.environ)
    if args.compile:
        prepare_environment()
    with without_driver_noise():
        importlib.import_module("jax")
    model = find_model(args.model, args.layers)
    plan = choose(model, options, target)
    reports: list[ProgramReport] = []
    if not args.json:
        print("\n".join(plan_lines(plan)), flush=True)
    if args.compile:
        reports = compile_all(plan, args.programs, print_rows=not args.json)
    if args.json:
        print(json.dumps(as_json(plan, reports), indent=2))
    return 0 if plan.fits else 1


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model without its weights."""

    name: str
    architecture: "Architecture"
    config: "ModelConfig"
    specs: Any


@dataclass(frozen=True, slots=True)
class Plan:
    """One model, configuration and device, and what they come to. ``note`` says how weights were chosen."""

    model: PlannedModel
    deployment: "Deployment"
    target: GpuTarget
    note: str
    ledger: "Ledger"
    traffics: "tuple[Traffic, ...]"

    @property
    def fits(self) -> bool:
        return self.ledger.total <= self.target.memory


def find_model(name: str, layers: int | None) -> PlannedModel:
    """A path as ``serve`` takes it, or a registered identity. Raises ConfigError or ModelLoadError."""
    from ninfer_jax.artifact.loader import open_checkpoint
    from ninfer_jax.artifact.recognise import recognise
    from ninfer_jax.models.identities import REGISTERED, identity_config

    path = Path(name)
    hf_config: Mapping[str, Any]
    if path.exists():
        checkpoint = open_checkpoint(path)
        name, hf_config = checkpoint.model_id, checkpoint.config
    elif name.lower() in REGISTERED:
        name = name.lower()
        hf_config = identity_config(name)
    else:
        raise ConfigError(
            f"{name}: no such file or folder, and not one of {', '.join(REGISTERED)}", field="MODEL"
        )
    architecture, config, specs = recognise(hf_config)
    if layers is not None:
        if not 1 <= layers <= len(config.layer_kinds):
            raise ConfigError(f"the model has {len(config.layer_kinds)} layers", field="--layers")
        architecture, config, specs = recognise(first_layers(hf_config, layers))
        name = f"{name}, first {layers} layers"
    return PlannedModel(name, architecture, config, specs)


def first_layers(hf_config: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The same model with fewer layers; every other size stays."""
    cut = dict(hf_config)
    if isinstance(cut.get("text_config"), Mapping):
        cut["text_config"] = first_layers(cut["text_config"], count)
        return cut
    cut["num_hidden_layers"] = count
    if cut.get("layer_types"):
        cut["layer_types"] = cut["layer_types"][:count]
    return cut


def choose(model: PlannedModel, options: ServeOptions, target: GpuTarget) -> Plan:
    """The widest weights that fit, unless the operator names a format; KV ``auto`` becomes a number."""
    formats: tuple[WeightFormat, ...] = ("bf16", "int8") if options.weights is None else (options.weights,)
    plan = plan_with(
        model, options, target, formats[0], "as asked" if options.weights else "the widest that fit"
    )
    if not plan.fits and len(formats) > 1:
        plan = plan_with(model, options, target, formats[1], f"{formats[0]} would need more than there is")
    return plan


def plan_with(
    model: PlannedModel, options: ServeOptions, target: GpuTarget, weights: WeightFormat, note: str
) -> Plan:
    import numpy as np
    from ml_dtypes import bfloat16

    from ninfer_jax.cli.deployment import deployment
    from ninfer_jax.engine.decode_traffic import decode_traffic
    from ninfer_jax.engine.ledger import make_ledger

    activation = np.dtype(np.float32 if weights == "f32" else bfloat16)
    device = budget(target)
    planned = deployment(model.config, model.specs, weights, activation, options, device)
    traffics = tuple(
        decode_traffic(planned, batch=batch, context=context)
        for batch in sorted({1, options.max_concurrency})
        for context in sorted({min(1024, options.max_context), options.max_context})
    )
    return Plan(model, planned, target, note, make_ledger(planned, runtime=device.runtime), traffics)


def budget(target: GpuTarget) -> "MemoryBudget":
    """All memory of a device on which nothing runs yet, as ``serve`` will share it out: what lies outside of
    jax's pool is the runtime's."""
    from ninfer_jax.engine.device_memory import MemoryBudget

    return MemoryBudget(target.name, target.memory, target.memory - target.pool)


def compile_all(plan: Plan, names: Sequence[str], *, print_rows: bool) -> "list[ProgramReport]":
    """Each program's row is printed as soon as it is compiled: a full model takes minutes."""
    reports = []
    lines = ["", heading()]
    for report in compile_programs(plan.model.architecture, plan.deployment, plan.target, names):
        reports.append(report)
        if print_rows:
            print("\n".join([*lines, *program_lines(report)]), flush=True)
        lines = []
    if print_rows:
        print("\n".join(closing_lines(plan.ledger, reports)))
    return reports


def plan_lines(plan: Plan) -> list[str]:
    from ninfer_jax.cli.ledger import memory_lines, traffic_lines
    from ninfer_jax.observe.sizes import binary_size

    target, verdict = plan.target, "fits" if plan.fits else "does not fit"
    card = f"{target.name} ({binary_size(target.memory)}, {target.bandwidth // 10**9:,} GB/s)"
    return [
        f"{plan.model.name} on {card}: {plan.deployment.weights} weights ({plan.note}), {verdict}",
        *memory_lines(plan.ledger, target.memory),
        *remedy_lines(plan),
        "",
        *traffic_lines(plan.traffics, target.bandwidth),
    ]


def remedy_lines(plan: Plan) -> list[str]:
    """What to lower where the plan does not fit, each on its own."""
    from ninfer_jax.engine.fit import remedies

    if plan.fits:
        return []
    return [
        f"  would fit with {flag} {value}" for flag, value in remedies(plan.deployment, budget(plan.target))
    ]


def as_json(plan: Plan, reports: "list[ProgramReport]") -> dict[str, Any]:
    facts: dict[str, Any] = {
        "model": plan.model.name,
        "gpu": asdict(plan.target),
        "weights": plan.deployment.weights,
        "fits": plan.fits,
        "memory": {**asdict(plan.ledger), "total": plan.ledger.total},
        "largest_kv_capacity": plan.ledger.largest_kv_capacity(plan.target.memory),
        "decode": [
            {
                **asdict(t),
                "total": t.total,
                "tokens_per_second_at_most": t.tokens_per_second(plan.target.bandwidth),
            }
            for t in plan.traffics
        ],
    }
    if reports:
        facts["programs"] = [asdict(report) for report in reports]
        facts["compiled_total"] = compiled_total(plan.ledger, reports)
    return facts
