"""``NAME.ninfer``: one folder with a manifest, the frontend's files and the weights as they are computed.

::

    ninfer.json     container version, identity, architecture, weight format, tensor table, file hashes
    frontend/       chat template, tokenizer, generation and preprocessor configs, byte for byte
    weights/        an Orbax checkpoint of a flat mapping: leaf name -> array
    groups/NAME/    the same for each group of weights that the text model does without (mtp, vision)

A leaf's name is its place in the model's weight tree (``layers.0.qkv``); a quantised leaf is two arrays,
``NAME.values`` and ``NAME.scale``. Vectors are stored in float32 and get the activation dtype when they
are restored. ``ninfer.json`` lists every other file with its size and SHA-256, ends with its own hash, and
is written last.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast, get_args

from ninfer_jax.artifact.source import SourceKind
from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import CorruptModelError, UnsupportedModelError
from ninfer_jax.models.groups import GROUP_PREFIXES

VERSION = 1
MANIFEST = "ninfer.json"
FRONTEND = "frontend"
WEIGHTS = "weights"
GROUPS = "groups"


_SEAL = b',\n  "sha256": "%b"\n}\n'
"""The manifest's last member: the hash of every byte before it."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    nbytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One array of the checkpoint; ``dtype`` is NumPy's name for it."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        size = {"float32": 4, "bfloat16": 2, "int8": 1}[self.dtype]
        return size * math.prod(self.shape)


DTYPES = ("float32", "bfloat16", "int8")


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group of weights beside the text model, in its own format and checkpoint."""

    weight_format: WeightFormat
    num_parameters: int
    tensors: Mapping[str, TensorEntry]

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self.tensors.values())


@dataclass(frozen=True, slots=True)
class Manifest:
    """What ``ninfer.json`` says. ``config`` is the Hugging Face ``config.json`` of the architecture."""

    model_id: str
    config: Mapping[str, Any]
    weight_format: WeightFormat
    num_parameters: int
    tensors: Mapping[str, TensorEntry]
    groups: Mapping[str, GroupEntry]
    files: Mapping[str, FileEntry]
    created_by: str
    source: Mapping[str, Any]

    def to_json(self) -> bytes:
        """Indented JSON with a final newline; one tensor and one file a line."""
        members = {
            "container_version": VERSION,
            "identity": {"model_id": self.model_id},
            "architecture": {"model_type": self.config["model_type"], "config": dict(self.config)},
            "quantization": {"weights": self.weight_format},
            "num_parameters": self.num_parameters,
            "created_by": self.created_by,
            "source": dict(self.source),
        }
        text = json.dumps(members, indent=2, ensure_ascii=False).removesuffix("\n}")
        for key, table in (("tensors", self.tensors), ("groups", self.groups), ("files", self.files)):
            lines = (f"    {json.dumps(name)}: {json.dumps(asdict(entry))}" for name, entry in table.items())
            text += f',\n  "{key}": {{\n' + ",\n".join(lines) + "\n  }"
        body = text.encode()
        return body + _SEAL % hashlib.sha256(body).hexdigest().encode()


class Artifact:
    """An opened ``NAME.ninfer`` folder: the manifest is read and the frontend's hashes are checked."""

    kind: SourceKind = "ninfer"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = read_manifest(path)
        names = [name for name in self.manifest.files if name.startswith(f"{FRONTEND}/")]
        self._check(names)
        self.resources: Mapping[str, bytes] = {
            name.removeprefix(f"{FRONTEND}/"): (path / name).read_bytes() for name in names
        }

    @property
    def model_id(self) -> str:
        return self.manifest.model_id

    @property
    def config(self) -> Mapping[str, Any]:
        return self.manifest.config

    @property
    def weights_path(self) -> Path:
        return self.path / WEIGHTS

    @property
    def formats(self) -> Mapping[str, int]:
        """Stored arrays by dtype."""
        dtypes = [entry.dtype for entry in self.manifest.tensors.values()]
        return {dtype: dtypes.count(dtype) for dtype in DTYPES if dtype in dtypes}

    @property
    def tensor_bytes(self) -> int:
        return sum(entry.nbytes for entry in self.manifest.tensors.values())

    def group_path(self, group: str) -> Path:
        return self.path / GROUPS / group

    def verify_weights(self, groups: Iterable[str] = ()) -> None:
        """Every file of the weights and of these groups has its size and hash, and there is no other.
        Raises CorruptModelError."""
        for folder in (WEIGHTS, *(f"{GROUPS}/{group}" for group in groups)):
            names = [name for name in self.manifest.files if name.startswith(f"{folder}/")]
            stray = set(list_files(self.path, folder)) - set(names)
            if stray:
                raise CorruptModelError(f"{self.path}: file {min(stray)} is left over", field=min(stray))
            self._check(names)

    def _check(self, names: Iterable[str]) -> None:
        expected = {name: self.manifest.files[name] for name in names}
        for name, entry in expected.items():  # sizes first: a truncated file is found at once
            if not (self.path / name).is_file():
                raise CorruptModelError(f"{self.path}: file {name} is missing", field=name)
            size = (self.path / name).stat().st_size
            if size != entry.nbytes:
                raise CorruptModelError(
                    f"{self.path}: file {name} has {size} bytes, expected {entry.nbytes}", field=name
                )
        found = file_entries(self.path, expected)
        for name, entry in expected.items():
            if found[name] != entry:
                raise CorruptModelError(f"{self.path}: file {name} has a wrong hash", field=name)


def is_artifact(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def list_files(root: Path, folder: str) -> list[str]:
    """Every file below ``root/folder``, relative to ``root``, sorted."""
    found = (file for file in (root / folder).rglob("*") if file.is_file())
    return sorted(file.relative_to(root).as_posix() for file in found)


def file_entries(root: Path, names: Iterable[str]) -> dict[str, FileEntry]:
    """Sizes and hashes, files in parallel (hashing releases the GIL)."""
    names = list(names)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return dict(zip(names, threads.map(lambda name: _file_entry(root / name), names), strict=True))


def _file_entry(path: Path) -> FileEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileEntry(file.tell(), digest.hexdigest())


def read_manifest(path: Path) -> Manifest:
    """Raises CorruptModelError naming the member at fault, UnsupportedModelError for another version."""
    data = (path / MANIFEST).read_bytes()
    try:
        members = json.loads(data)
    except ValueError as error:
        raise CorruptModelError(f"{path}/{MANIFEST} is not JSON: {error}", field=MANIFEST) from error
    version = members.get("container_version") if isinstance(members, dict) else None
    if version != VERSION:
        raise UnsupportedModelError(
            f"{path}: container version {version!r} is not supported (only {VERSION})",
            field="container_version",
        )
    body = data[: -len(_SEAL % bytes(64))]
    if data != body + _SEAL % hashlib.sha256(body).hexdigest().encode():
        raise CorruptModelError(f"{path}/{MANIFEST} has a wrong hash", field=MANIFEST)
    return Manifest(
        model_id=_member(members, "identity.model_id", str),
        config=_member(members, "architecture.config", dict),
        weight_format=_weight_format(members, "quantization.weights"),
        num_parameters=_member(members, "num_parameters", int),
        tensors=_tensor_table(members),
        groups={name: _group_entry(name, entry) for name, entry in _groups(members).items()},
        files={name: _manifest_file(name, entry) for name, entry in _member(members, "files", dict).items()},
        created_by=_member(members, "created_by", str),
        source=_member(members, "source", dict),
    )


def _member(members: Any, path: str, kind: type) -> Any:
    value = members
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CorruptModelError(f"{MANIFEST}: {path} is {value!r}, not a {kind.__name__}", field=path)
    return value


def _weight_format(members: Any, path: str) -> WeightFormat:
    value = _member(members, path, str)
    if value not in get_args(WeightFormat):
        raise UnsupportedModelError(f"{MANIFEST}: weights of format {value!r} are not supported", field=path)
    return cast(WeightFormat, value)


def _groups(members: Any) -> dict[str, Any]:
    """Empty where there is no such member: artifacts had none at first."""
    groups: dict[str, Any] = _member({"groups": {}, **members}, "groups", dict)
    return groups


def _group_entry(name: str, entry: Any) -> GroupEntry:
    if name not in GROUP_PREFIXES:
        raise UnsupportedModelError(f"{MANIFEST}: there is no group {name!r} of weights", field="groups")
    return GroupEntry(
        weight_format=_weight_format(entry, "weight_format"),
        num_parameters=_member(entry, "num_parameters", int),
        tensors=_tensor_table(entry),
    )


def _tensor_table(members: Any) -> dict[str, TensorEntry]:
    return {name: _tensor_entry(name, entry) for name, entry in _member(members, "tensors", dict).items()}


def _tensor_entry(name: str, entry: Any) -> TensorEntry:
    shape, dtype = _member(entry, "shape", list), _member(entry, "dtype", str)
    if dtype not in DTYPES or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise CorruptModelError(f"{MANIFEST}: tensor {name} is {entry!r}", field=name)
    return TensorEntry(tuple(shape), dtype)


def _manifest_file(name: str, entry: Any) -> FileEntry:
    parts = name.split("/")
    if parts[0] not in (FRONTEND, WEIGHTS, GROUPS) or len(parts) < 2 or ".." in parts or "" in parts:
        raise CorruptModelError(f"{MANIFEST}: {name!r} is not a file of the artifact", field="files")
    return FileEntry(_member(entry, "nbytes", int), _member(entry, "sha256", str))
