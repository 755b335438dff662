"""``ninfer-jax convert SOURCE OUT.ninfer``: write an artifact."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ninfer_jax.artifact.container import Artifact, Manifest
from ninfer_jax.artifact.convert import convert
from ninfer_jax.artifact.hf_source import read_json
from ninfer_jax.artifact.loader import default_weights, open_checkpoint
from ninfer_jax.artifact.random_source import RandomSource
from ninfer_jax.artifact.source import Source
from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import ConfigError
from ninfer_jax.models.groups import GROUP_PREFIXES
from ninfer_jax.observe.sizes import binary_size, short_count

HELP = "Make a NAME.ninfer artifact from a Hugging Face folder or a GGUF file."

STAGES = {
    "read": "reading tensors",
    "write": "writing weights",
    "hash": "hashing files",
    "sync": "flushing to disk",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a checkpoint folder or a .gguf file")
    parser.add_argument("out", type=Path, metavar="OUT.ninfer", help="the artifact to write")
    parser.add_argument(
        "--weights",
        choices=get_args(WeightFormat),
        help="weight format (default: what this machine's device serves best)",
    )
    parser.add_argument("--model-id", metavar="ID", help="the name to serve it under (default: its own)")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=GROUP_PREFIXES,
        help="leave aside what text is served without (default: the artifact carries it)",
    )
    parser.add_argument("--force", action="store_true", help="replace an artifact of that name")
    parser.add_argument(
        "--random", action="store_true", help="SOURCE is a config.json: make random weights for it"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of --random (default: 0)")


def run(args: argparse.Namespace) -> int:
    source = _open(args.source, args.random, args.seed)
    with _progress_bar() as bar:
        task = bar.add_task(STAGES["read"], total=None)
        manifest = convert(
            source,
            args.out,
            args.weights or default_weights(),
            model_id=args.model_id,
            without=args.without,
            force=args.force,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            stage=lambda name: bar.update(task, description=STAGES[name]),
        )
    print(_report(args.out, manifest))
    return 0


def _open(path: Path, is_random: bool, seed: int) -> Source:
    if is_random:
        return RandomSource(path, read_json(path), seed)
    source = open_checkpoint(path)
    if isinstance(source, Artifact):
        raise ConfigError(f"{path} is an artifact already; convert its source", field="SOURCE")
    return source


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """A bar on a terminal's stderr; nothing where stderr is redirected."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        yield bar


def _report(out: Path, manifest: Manifest) -> str:
    size = binary_size(sum(file.nbytes for file in manifest.files.values()))
    parameters = short_count(manifest.num_parameters)
    lines = [f"{out}: {manifest.model_id}, {parameters} parameters in {manifest.weight_format}, {size}"]
    for name, group in manifest.groups.items():
        size = binary_size(group.nbytes)
        lines.append(
            f"with {name}: {short_count(group.num_parameters)} parameters in {group.weight_format}, {size}"
        )
    for name, count in manifest.source["left_aside"].items():
        lines.append(f"left aside: {count} tensors of {name}")
    return "\n".join(lines)
