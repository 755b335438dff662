"""Writing artifacts. An artifact appears under its name whole, or not at all.

Everything is written to a hidden sibling (``.NAME.ninfer.partial``, locked while it is in use), flushed
to disk, and renamed. What a killed run leaves is that sibling: it has no manifest until it is complete,
so nothing loads it, and the next run to the same name replaces it.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ninfer_jax import __version__
from ninfer_jax.artifact.assemble import Progress, load_weights, no_progress
from ninfer_jax.artifact.container import (
    FRONTEND,
    GROUPS,
    MANIFEST,
    WEIGHTS,
    GroupEntry,
    Manifest,
    file_entries,
    list_files,
)
from ninfer_jax.artifact.recognise import recognise
from ninfer_jax.artifact.source import Source
from ninfer_jax.artifact.stored_weights import save_weights, tensor_table
from ninfer_jax.artifact.tensor_names import check_names, present_groups
from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import ConfigError
from ninfer_jax.models.base import Weights
from ninfer_jax.models.groups import group_format
from ninfer_jax.models.identities import resolve_identity
from ninfer_jax.models.weights import num_parameters, spec_leaves

SUFFIX = ".ninfer"


def convert(
    source: Source,
    out: Path,
    weight_format: WeightFormat,
    *,
    model_id: str | None = None,
    without: Collection[str] = (),
    force: bool = False,
    progress: Progress = no_progress,
    stage: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Write ``source`` as an artifact. Needs host memory for the weights in their new format.

    Groups of weights that the text model does without (mtp, vision) are carried, each by itself and whole,
    except those named in ``without``.

    ``stage`` hears what begins (``read``, ``write``, ``hash``, ``sync``); ``progress`` counts the first.

    Raises ConfigError where ``out`` is no place for an artifact, or is taken and not ``force``d;
    ModelLoadError for what ``load`` would refuse.
    """
    _check_out(out, force)
    plan = _plan(source, weight_format, model_id, without)
    with _errors_of_the_disk(out), _partial_folder(out) as partial:
        _write_weights(source, partial / WEIGHTS, plan.specs, weight_format, progress, stage)
        for name, group in plan.groups.items():
            group_folder = partial / GROUPS / name
            _write_weights(source, group_folder, group, group_format(name, weight_format), progress, stage)
        _write_resources(partial / FRONTEND, source.resources)
        stage("hash")
        manifest = _manifest(source, plan, partial)
        (partial / MANIFEST).write_bytes(manifest.to_json())
        stage("sync")
        _sync(partial)
        _publish(partial, out)
    return manifest


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an artifact will hold. ``left_aside`` counts the source's other tensors, by group."""

    identity: str
    weight_format: WeightFormat
    specs: Weights
    groups: Mapping[str, Weights]
    left_aside: Mapping[str, int]


def _plan(
    source: Source, weight_format: WeightFormat, model_id: str | None, without: Collection[str]
) -> _Plan:
    """Raises ModelLoadError for what ``load`` would refuse, before anything is written."""
    identity = resolve_identity(model_id or source.model_id, source.config)
    _, config, specs = recognise(source.config, len(source.tensors))
    present = present_groups(config, source.tensors)
    groups = {name: group for name, group in present.items() if name not in without}
    left_aside = check_names(spec_leaves((specs, groups)), source.tensors)
    return _Plan(identity, weight_format, specs, groups, left_aside)


def _manifest(source: Source, plan: _Plan, folder: Path) -> Manifest:
    """The manifest of what was written to ``folder``: hashes every file."""
    files = [file for part in (FRONTEND, WEIGHTS, GROUPS) for file in list_files(folder, part)]
    return Manifest(
        model_id=plan.identity,
        config=source.config,
        weight_format=plan.weight_format,
        num_parameters=num_parameters(plan.specs),
        tensors=tensor_table(plan.specs, plan.weight_format),
        groups={name: _group_entry(name, group, plan.weight_format) for name, group in plan.groups.items()},
        files=file_entries(folder, files),
        created_by=f"ninfer-jax {__version__}",
        source={
            "kind": source.kind,
            "name": source.path.name,
            "formats": dict(source.formats),
            "left_aside": plan.left_aside,
        },
    )


def _write_weights(
    source: Source,
    folder: Path,
    specs: Weights,
    weight_format: WeightFormat,
    progress: Progress,
    stage: Callable[[str], None],
) -> None:
    """One tree, read whole into host memory and gone from it afterwards."""
    stage("read")
    tree = load_weights(source, specs, weight_format, np.float32, place=lambda leaf: leaf, progress=progress)
    stage("write")
    folder.parent.mkdir(exist_ok=True)
    save_weights(folder, specs, tree)


def _group_entry(name: str, specs: Weights, weight_format: WeightFormat) -> GroupEntry:
    own_format = group_format(name, weight_format)
    return GroupEntry(own_format, num_parameters(specs), tensor_table(specs, own_format))


@contextmanager
def _errors_of_the_disk(out: Path) -> Iterator[None]:
    """A full disk or a read-only folder is the user's to mend: one line, not a traceback."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror or error}", field="OUT") from error


def _check_out(out: Path, force: bool) -> None:
    if out.suffix != SUFFIX:
        raise ConfigError(f"{out}: the name of an artifact ends in {SUFFIX}", field="OUT")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {out.parent}", field="OUT")
    if not out.exists():
        return
    if not force:
        raise ConfigError(f"{out} exists; --force replaces it", field="OUT")
    if not (out / MANIFEST).is_file():
        raise ConfigError(f"{out} is not an artifact; it is not replaced even with --force", field="OUT")


@contextmanager
def _partial_folder(out: Path) -> Iterator[Path]:
    """An empty locked folder beside ``out``; gone afterwards unless it was renamed."""
    partial = out.parent / f".{out.name}.partial"
    partial.mkdir(exist_ok=True)
    lock = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"another convert is writing {out}", field="OUT") from error
        if not partial.is_dir() or not os.path.samestat(os.fstat(lock), partial.stat()):
            raise ConfigError(f"another convert has just written {out}", field="OUT")
        _empty(partial)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    finally:
        os.close(lock)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _write_resources(folder: Path, resources: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, data in resources.items():
        (folder / name).write_bytes(data)


def _sync(folder: Path) -> None:
    """Flush every file and folder below, so that the rename cannot overtake the data."""
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _publish(partial: Path, out: Path) -> None:
    """Rename into place. A replaced artifact steps aside first: a full folder cannot be renamed over."""
    replaced = out.parent / f".{out.name}.replaced"
    shutil.rmtree(replaced, ignore_errors=True)
    if out.exists():
        out.rename(replaced)
    partial.rename(out)
    parent = os.open(out.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    shutil.rmtree(replaced, ignore_errors=True)
