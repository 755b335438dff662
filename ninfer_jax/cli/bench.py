"""``ninfer-jax bench``: how fast is it, on this machine, next to what else there is?"""

import argparse
import contextlib
import functools
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console
from rich.table import Table

from ninfer_jax.cache_home import cache_home
from ninfer_jax.cli import bench_report
from ninfer_jax.cli.bench_engine import open_engine
from ninfer_jax.cli.bench_host import host
from ninfer_jax.cli.bench_http import HttpTarget
from ninfer_jax.cli.bench_measures import Experiment, Metric, Results, experiments, measure
from ninfer_jax.cli.bench_server import ServerProcess
from ninfer_jax.cli.bench_stall import stall
from ninfer_jax.cli.bench_sweep import sweep
from ninfer_jax.cli.bench_target import Target
from ninfer_jax.cli.bench_worker import WorkerTarget
from ninfer_jax.cli.parser import add_model
from ninfer_jax.config import EngineConfig, WeightFormat
from ninfer_jax.errors import ConfigError

HELP = """Measure prefill, decode, latency, prefix reuse, memory and start-up. Without --url it loads the
model in processes of its own: the engine alone, the server over HTTP, and each --against peer, all
interleaved; ratios are medians of pairs. A table, then one JSON line, last, on stdout."""

PEERS = ("llama.cpp", "transformers")
ROWS = 8
CONTEXT = 2048
KV_CAPACITY = ROWS * CONTEXT
OURS = "ninfer-jax"
OURS_HTTP = "ninfer-jax http"
COLD = Metric("start-up, nothing compiled", "s", False)
WARM = Metric("start-up, compile cache warm", "s", False)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--url", metavar="URL", help="measure this OpenAI-compatible server instead")
    parser.add_argument("--api-key", metavar="KEY", help="bearer token for --url")
    parser.add_argument("--model-id", metavar="ID", help="model to ask --url for (default: its first)")
    parser.add_argument(
        "--against",
        action="append",
        choices=PEERS,
        default=[],
        help="measure this peer too, in the same run; may be given twice",
    )
    parser.add_argument(
        "--against-url", metavar="URL", help="measure this server too, in the same run, as a peer"
    )
    parser.add_argument("--weights", choices=get_args(WeightFormat), help="weight format of our engine")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="counted repeats (default: 5)")
    names = tuple(dict.fromkeys(experiment.name for experiment in experiments()))
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAMES",
        help=f"experiments, separated by commas, of {', '.join((*names, 'startup'))} (default: all)",
    )
    parser.add_argument("--no-http", action="store_true", help="leave out our server and its start-up")
    parser.add_argument(
        "--sweep-context",
        action="store_true",
        help="measure decode over the context's length and over the pool's capacity instead",
    )
    parser.add_argument(
        "--stall",
        action="store_true",
        help="measure the gaps of running streams while a long prompt prefills instead",
    )
    parser.add_argument(
        "--host",
        action="store_true",
        help="measure what the host adds to a decode round, alone and under HTTP streams, instead",
    )


def run(args: argparse.Namespace) -> int:
    if args.repeats < 1:
        raise ConfigError("--repeats must be at least 1", field="--repeats")
    chosen = _chosen(args.only)
    if args.sweep_context:
        tables, record = sweep(_model(args), args.weights, args.repeats, _progress)
    elif args.stall:
        tables, record = stall(_model(args), args.weights, args.repeats, _progress)
    elif args.host:
        path, config = _model(args), engine_config(args.weights)
        tables, record = host(path, config, _server_flags(path, config), args.repeats, _progress)
    else:
        tables, record = _compare(args, chosen)
    bench_report.print_report(tables, record)
    return 0


def _chosen(only: Sequence[str]) -> list[Experiment]:
    known = experiments()
    names = [*dict.fromkeys(experiment.name for experiment in known), "startup"]
    unknown = set(only) - set(names)
    if unknown:
        raise ConfigError(
            f"--only knows no experiment {', '.join(sorted(unknown))}; there are {', '.join(names)}",
            field="--only",
        )
    return [experiment for experiment in known if not only or experiment.name in only]


def _compare(args: argparse.Namespace, chosen: Sequence[Experiment]) -> tuple[list[Table], dict[str, Any]]:
    with contextlib.ExitStack() as stack:
        startup: dict[Metric, list[float]] = {}
        if args.url:
            targets: list[Target] = [
                HttpTarget(args.url, args.url, api_key=args.api_key, model=args.model_id)
            ]
        else:
            targets = _own_targets(args, stack, startup)
        targets += _peers(args)
        for target in targets:
            stack.callback(target.close)
        results = measure(targets, chosen, args.repeats, _progress)
        for metric, values in startup.items():
            results.samples[OURS_HTTP][metric] = values
        memory = {target.name: target.peak_memory() for target in targets}
    baseline = targets[0].name
    record = {
        "model": args.model_id if args.url else _model(args).name,
        "weights": args.weights,
        "repeats": args.repeats,
        **bench_report.results_json(results, baseline, memory),
    }
    tables = [bench_report.results_table(results, baseline, memory)]
    if OURS in results.samples and OURS_HTTP in results.samples:
        record["http_overhead_percent"] = http_overhead(results)
    return tables, record


def http_overhead(results: Results) -> float | None:
    """How much longer a decode round at B=1 takes when its token goes out over HTTP, in percent."""
    for metric in results.metrics:
        if metric.name == "decode B=1" and (ratio := results.ratio(OURS, OURS_HTTP, metric)):
            return 100 * (ratio - 1)
    return None


def _own_targets(
    args: argparse.Namespace, stack: contextlib.ExitStack, startup: dict[Metric, list[float]]
) -> list[Target]:
    """Our engine in a worker process, and our server in another."""
    path = _model(args)
    config = engine_config(args.weights)
    _progress(f"starting {OURS}")
    targets: list[Target] = [WorkerTarget(OURS, functools.partial(open_engine, path, config, OURS))]
    if args.no_http:
        return targets
    flags = _server_flags(path, config)
    if not args.only or "startup" in args.only:
        startup.update(_time_startup(flags))
    _progress(f"starting {OURS_HTTP}")
    server = stack.enter_context(ServerProcess(flags))
    targets.append(HttpTarget(OURS_HTTP, server.url, process_id=server.process_id))
    return targets


def engine_config(weights: WeightFormat | None, kv_capacity: int = KV_CAPACITY) -> EngineConfig:
    return EngineConfig(max_context=CONTEXT, kv_capacity=kv_capacity, max_concurrency=ROWS, weights=weights)


def _server_flags(path: Path, config: EngineConfig) -> list[str]:
    flags = [str(path), "--max-context", str(config.max_context), "--kv-capacity", str(config.kv_capacity)]
    flags += ["--max-concurrency", str(config.max_concurrency)]
    return [*flags, "--weights", config.weights] if config.weights else flags


def _time_startup(flags: Sequence[str]) -> dict[Metric, list[float]]:
    """Once with an empty compile cache, once with what that start left in it."""
    with tempfile.TemporaryDirectory(prefix="ninfer-bench-") as folder:
        seconds = []
        for label in ("cold", "warm"):
            _progress(f"start-up, {label}")
            with ServerProcess(flags, compile_cache=Path(folder)) as server:
                seconds.append(server.startup_seconds)
    return {COLD: seconds[:1], WARM: seconds[1:]}


def _peers(args: argparse.Namespace) -> Iterator[Target]:
    threads = len(os.sched_getaffinity(0))
    for peer in args.against:
        _progress(f"starting {peer}")
        if peer == "llama.cpp":
            from ninfer_jax.cli.bench_llama_cpp import LlamaCppTarget

            path = _q8_0(_model(args))
            factory = functools.partial(LlamaCppTarget, path, slots=ROWS, context=CONTEXT, threads=threads)
            yield WorkerTarget(peer, factory)
        else:
            from ninfer_jax.cli.bench_transformers import TransformersTarget

            yield WorkerTarget(peer, functools.partial(TransformersTarget, _model(args), threads=threads))
    if args.against_url:
        yield HttpTarget(args.against_url, args.against_url, api_key=args.api_key)


def _model(args: argparse.Namespace) -> Path:
    from ninfer_jax.artifact.demo import demo_model

    path: Path = args.model or demo_model()
    if not path.exists():
        raise ConfigError(f"there is no {path}", field="MODEL")
    return path


def _q8_0(path: Path) -> Path:
    """The same weights as a Q8_0 GGUF file, made once and kept in the cache folder."""
    from ninfer_jax.cli.bench_gguf import requantise_q8_0

    if path.suffix != ".gguf":
        raise ConfigError(f"--against llama.cpp needs a .gguf model, not {path}", field="--against")
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:16]
    target = cache_home() / "bench" / f"{path.stem}-{key}.Q8_0.gguf"
    if not target.exists():
        _progress(f"writing {target}")
        requantise_q8_0(path, target)
    return target


def _progress(text: str) -> None:
    """What is being measured, on a terminal's stderr only."""
    if sys.stderr.isatty():
        Console(stderr=True).print(f"[dim]{text}[/dim]", highlight=False)
