"""``ninfer-jax profile``: a JAX profiler trace of this engine's decode rounds, or of a running server."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import httpx
from rich.console import Console
from rich.table import Table

from ninfer_jax.cli.parser import add_model
from ninfer_jax.config import PAGE_SIZE, EngineConfig, WeightFormat
from ninfer_jax.errors import ConfigError, NinferError

if TYPE_CHECKING:  # the module imports jax
    from ninfer_jax.engine.trace_summary import Cost

HELP = """Capture a JAX profiler trace, for TensorBoard's profile plugin or Perfetto. Without --url: load a
model, then trace decode rounds. With --url: trace the next seconds of a server that was started with
--profile-dir and --api-key; the trace stays on the server's machine."""

MAX_SECONDS = 60
MAX_ROWS = 8
PREFILL_CHUNK = 128
"""Decode is what is traced; fewer prefill programs start sooner."""
ANSWER_SECONDS = 120
"""After a capture the profiler still has to write it out."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--out", type=Path, default=Path("profile"), metavar="DIR", help="default: ./profile")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="decode rounds (default: 20)")
    parser.add_argument("--rows", type=int, default=1, metavar="B", help="requests in each, 1 to 8")
    parser.add_argument("--context", type=int, default=128, metavar="N", help="their prompt tokens")
    parser.add_argument("--weights", choices=get_args(WeightFormat), help="weight format")
    parser.add_argument("--url", metavar="URL", help="trace this running server instead")
    parser.add_argument("--api-key", metavar="KEY", help="its key")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="for how long (default: 3)")


def run(args: argparse.Namespace) -> int:
    _check("--rows", args.rows, 1, MAX_ROWS)
    _check("--rounds", args.rounds, 1, 10_000)
    _check("--context", args.context, 1, 1_000_000)
    _check("--seconds", args.seconds, 0.1, MAX_SECONDS)
    print(remote(args.url, args.api_key, args.seconds) if args.url else local(args))
    return 0


def local(args: argparse.Namespace) -> Path:
    """Trace ``--rounds`` rounds of ``--rows`` rows, and print what they spent on stderr; the folder."""
    from ninfer_jax.artifact.demo import demo_model
    from ninfer_jax.cli.bench_engine import EngineTarget
    from ninfer_jax.cli.bench_target import Job
    from ninfer_jax.engine.build import build_engine, load_checked
    from ninfer_jax.engine.runner import DeviceRunner
    from ninfer_jax.engine.trace import capture
    from ninfer_jax.engine.trace_summary import device_seconds

    capacity = args.context + args.rounds + 1
    config = EngineConfig(
        max_context=capacity,
        kv_capacity=args.rows * (capacity + PAGE_SIZE),
        max_concurrency=args.rows,
        prefill_chunk=PREFILL_CHUNK,
        weights=args.weights,
    )
    model = load_checked(args.model or demo_model(), lambda model: config, weights=args.weights)
    engine = build_engine(model, config)
    target = EngineTarget(engine, engine.shutdown)
    try:
        target.run([Job(args.context, 2, seed) for seed in range(args.rows)])
        jobs = [Job(args.context, args.rounds + 1, MAX_ROWS + seed) for seed in range(args.rows)]
        folder = capture(args.out, lambda: target.run(jobs))
        executor = engine.scheduler.services.executor
        assert isinstance(executor, DeviceRunner)
        costs = device_seconds(folder, "jit_decode_round", executor.decode_hlo(args.rows))
    finally:
        target.close()
    Console(stderr=True).print(_table(costs, args.rows))
    return folder


def remote(url: str, api_key: str | None, seconds: float) -> str:
    """Ask a server for a capture; the folder, on its machine."""
    where = f"{url.rstrip('/').removesuffix('/v1')}/profile"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        answer = httpx.post(
            where, json={"seconds": seconds}, headers=headers, timeout=seconds + ANSWER_SECONDS
        )
    except httpx.HTTPError as error:
        raise NinferError(f"{where}: {error}") from None
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise NinferError(f"{where}: the server was not started with --profile-dir")
    if answer.status_code != httpx.codes.OK:
        raise NinferError(f"{where} answered {answer.status_code}: {_message(answer)}")
    folder: str = answer.json()["folder"]
    return folder


def _table(costs: "Mapping[tuple[str, str], Cost]", rows: int) -> Table:
    """A row a named scope, and its dearest operation."""
    from ninfer_jax.engine.trace_summary import by_scope

    table = Table(title=f"device time of a decode round, B={rows}")
    for name in ("scope", "ms", "share", "instructions", "dearest", "its ms"):
        table.add_column(name, justify="left" if name in ("scope", "dearest") else "right")
    scopes = by_scope(costs)
    total = sum(cost.seconds for cost in scopes.values())
    for scope, cost in scopes.items():
        operation, dearest = next((op, own) for (name, op), own in costs.items() if name == scope)
        table.add_row(
            scope,
            f"{1000 * cost.seconds_per_run:.3f}",
            f"{100 * cost.seconds / total:.0f}%",
            f"{cost.count_per_run:.0f}",
            operation,
            f"{1000 * dearest.seconds_per_run:.3f}",
        )
    return table


def _message(answer: httpx.Response) -> str:
    try:
        body: Any = answer.json()
        return str(body["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200]


def _check(flag: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{flag} must be from {low:g} to {high:g}, not {value:g}", field=flag)
