"""Artifacts: what is written is what is restored, and nothing damaged or unfinished loads."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from ninfer_jax.artifact.container import Artifact, read_manifest
from ninfer_jax.artifact.convert import convert
from ninfer_jax.artifact.hf_source import HuggingFaceSource
from ninfer_jax.artifact.loader import load
from ninfer_jax.errors import ConfigError, CorruptModelError, ModelLoadError, UnsupportedModelError
from tests.artifact import checkpoints

CONFIG = checkpoints.config()
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "tiny-model"
    checkpoints.write_folder(path, CONFIG, checkpoints.tensors(CONFIG))
    (path / "generation_config.json").write_text('{\n  "eos_token_id": [2],\r\n "top_k": 7}')
    (path / "README.md").write_text("not a resource")
    return path


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An int8 artifact; tests that damage it take a copy."""
    out = tmp_path_factory.mktemp("artifact") / "tiny.ninfer"
    convert(HuggingFaceSource(folder), out, "int8")
    return out


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy.ninfer"))


def equal(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("weights", ["f32", "bf16", "int8"])
def test_restores_what_the_source_loads(folder: Path, tmp_path: Path, weights: Any) -> None:
    out = tmp_path / "tiny.ninfer"
    convert(HuggingFaceSource(folder), out, weights)
    source, artifact = load(folder, weights=weights), load(out, weights=weights)
    equal(source.weights, artifact.weights)
    assert artifact.config == source.config
    assert artifact.identity == source.identity
    assert artifact.resources == source.resources
    assert artifact.num_parameters == source.num_parameters
    assert artifact.weight_bytes == source.weight_bytes


def test_a_wider_artifact_serves_narrower(folder: Path, tmp_path: Path) -> None:
    """f32 and bf16 are cast or quantised as they are restored; without a wish, as the device likes."""
    convert(HuggingFaceSource(folder), tmp_path / "f.ninfer", "f32")
    for weights in ("bf16", "int8"):
        equal(load(tmp_path / "f.ninfer", weights=weights).weights, load(folder, weights=weights).weights)
    assert load(tmp_path / "f.ninfer").weight_format == load(folder).weight_format


def test_int8_is_not_widened(made: Path) -> None:
    assert load(made).weight_format == "int8"
    with pytest.raises(UnsupportedModelError, match="holds int8 weights") as error:
        load(made, weights="f32")
    assert error.value.field == "weights"


def test_model_id_travels(folder: Path, tmp_path: Path) -> None:
    convert(HuggingFaceSource(folder), tmp_path / "a.ninfer", "int8", model_id="mine")
    assert load(tmp_path / "a.ninfer").identity.model_id == "mine"


def test_manifest(made: Path) -> None:
    members = json.loads((made / "ninfer.json").read_text())
    assert members["container_version"] == 1
    assert members["identity"] == {"model_id": "tiny-model"}
    assert members["architecture"] == {"model_type": "llama", "config": CONFIG}
    assert members["quantization"] == {"weights": "int8"}
    assert members["source"]["kind"] == "huggingface"
    assert members["tensors"]["embedding.values"] == {"shape": [96, 64], "dtype": "int8"}
    assert "frontend/README.md" not in members["files"]


def every_file(path: Path) -> list[str]:
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())


def test_any_changed_file_is_refused_by_name(copy: Path) -> None:
    """One flipped bit, one missing byte, or the whole file gone: for every file of the artifact."""
    for name in every_file(copy):
        file, whole = copy / name, (copy / name).read_bytes()
        middle = len(whole) // 2
        for damaged in (
            whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            whole[:-1],
            whole + b"\n",
            b"",
        ):
            file.write_bytes(damaged)
            with pytest.raises(ModelLoadError) as error:
                load(copy)
            assert Path(name).name in error.value.message or "ninfer.json" in name
        file.unlink()
        with pytest.raises(ModelLoadError):
            load(copy)
        file.write_bytes(whole)
    load(copy)


def test_a_stray_weight_file_is_refused(copy: Path) -> None:
    (copy / "weights" / "d" / "stray").write_bytes(b"x")
    with pytest.raises(CorruptModelError, match="stray is left over"):
        load(copy)


def reseal(path: Path, **changes: Any) -> None:
    """Rewrite the manifest with members changed and a right hash, as a faulty writer would."""
    (path / "ninfer.json").write_bytes(replace(read_manifest(path), **changes).to_json())


def test_tensor_table_against_the_model(copy: Path) -> None:
    table = dict(Artifact(copy).manifest.tensors)
    reseal(copy, tensors={name: entry for name, entry in table.items() if name != "norm"})
    with pytest.raises(CorruptModelError, match="tensor norm is missing"):
        load(copy)
    reseal(copy, tensors={**table, "ghost": table["norm"]})
    with pytest.raises(CorruptModelError, match="tensor ghost is left over"):
        load(copy)
    reseal(copy, tensors={**table, "norm": table["embedding.scale"]})
    with pytest.raises(CorruptModelError, match=r"tensor norm is float32 \[96\], expected float32 \[64\]"):
        load(copy)


def test_checkpoint_that_is_not_the_manifests(made: Path, copy: Path, tmp_path: Path) -> None:
    """Right hashes, but another model's checkpoint."""
    other = checkpoints.config(num_hidden_layers=1)
    convert(
        HuggingFaceSource(checkpoints.write_folder(tmp_path / "o", other, checkpoints.tensors(other))),
        tmp_path / "o.ninfer",
        "int8",
    )
    shutil.rmtree(copy / "weights")
    shutil.copytree(tmp_path / "o.ninfer" / "weights", copy / "weights")
    mine, theirs = Artifact(made).manifest.files, Artifact(tmp_path / "o.ninfer").manifest.files
    files = {name: entry for name, entry in mine.items() if name.startswith("frontend/")}
    files |= {name: entry for name, entry in theirs.items() if name.startswith("weights/")}
    reseal(copy, files=files)
    with pytest.raises(CorruptModelError, match="not the checkpoint"):
        load(copy)


@pytest.mark.parametrize(
    "name", ["../outside", "weights/../../outside", "other/file", "frontend", "/etc/passwd"]
)
def test_files_outside_the_artifact(copy: Path, name: str) -> None:
    files = Artifact(copy).manifest.files
    reseal(copy, files={**files, name: next(iter(files.values()))})
    with pytest.raises(CorruptModelError, match="not a file of the artifact"):
        load(copy)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", CorruptModelError),
        ("[]", UnsupportedModelError),
        ('{"container_version": 2}', UnsupportedModelError),
        ('{"container_version": 1}', CorruptModelError),
    ],
)
def test_foreign_manifests(copy: Path, text: str, error: type[ModelLoadError]) -> None:
    (copy / "ninfer.json").write_text(text)
    with pytest.raises(error):
        load(copy)


def test_out_must_be_a_free_artifact_name(folder: Path, tmp_path: Path) -> None:
    source = HuggingFaceSource(folder)
    with pytest.raises(ConfigError, match=r"ends in \.ninfer"):
        convert(source, tmp_path / "a", "int8")
    with pytest.raises(ConfigError, match="there is no folder"):
        convert(source, tmp_path / "b" / "a.ninfer", "int8")
    (tmp_path / "a.ninfer").mkdir()
    (tmp_path / "a.ninfer" / "thesis.txt").write_text("precious")
    for force in (False, True):
        with pytest.raises(ConfigError, match=r"a\.ninfer"):
            convert(source, tmp_path / "a.ninfer", "int8", force=force)
    assert (tmp_path / "a.ninfer" / "thesis.txt").read_text() == "precious"


def test_force_replaces_an_artifact(made: Path, copy: Path, folder: Path) -> None:
    with pytest.raises(ConfigError, match="--force"):
        convert(HuggingFaceSource(folder), copy, "bf16")
    convert(HuggingFaceSource(folder), copy, "bf16", force=True)
    assert load(copy, weights="bf16").weight_format == "bf16"
    assert [path.name for path in copy.parent.iterdir()] == ["copy.ninfer"]


def test_a_source_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    tensors = checkpoints.tensors(CONFIG)
    tensors["model.norm.weight"][0] = np.nan
    source = HuggingFaceSource(checkpoints.write_folder(tmp_path / "m", CONFIG, tensors))
    with pytest.raises(CorruptModelError, match=r"model\.norm\.weight"):
        convert(source, tmp_path / "a.ninfer", "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_full_disk_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ninfer_jax.artifact.convert.save_weights", fail)
    with pytest.raises(ConfigError, match=r"cannot write .*tiny\.ninfer: No space left on device"):
        convert(HuggingFaceSource(folder), tmp_path / "tiny.ninfer", "int8")
    assert os.listdir(tmp_path) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from ninfer_jax.artifact import convert as module
from ninfer_jax.artifact.hf_source import HuggingFaceSource

folder, out, moment = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if moment == "publish":
    module._publish = die
else:
    stage = lambda name: die() if name == moment else None
module.convert(HuggingFaceSource(Path(folder)), Path(out), "int8", **(
    {} if moment == "publish" else {"stage": stage}))
"""


@pytest.mark.parametrize("moment", ["write", "hash", "publish"])
def test_a_killed_convert_leaves_nothing_that_loads(folder: Path, tmp_path: Path, moment: str) -> None:
    """kill -9 before the weights, between weights and manifest, and just before the rename."""
    out = tmp_path / "tiny.ninfer"
    process = subprocess.run([sys.executable, "-c", KILLED, folder, out, moment], cwd=ROOT, check=False)
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    with pytest.raises(ModelLoadError):
        load(out)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".")
    if moment != "publish":  # complete apart from its name, so it may load by its hidden one
        with pytest.raises(ModelLoadError):
            load(left)
    convert(HuggingFaceSource(folder), out, "int8")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.ninfer"]
    load(out)


def test_one_convert_at_a_time(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny.ninfer"

    def second(name: str) -> None:
        if name == "write":
            with pytest.raises(ConfigError, match="another convert is writing"):
                convert(HuggingFaceSource(folder), out, "int8")

    convert(HuggingFaceSource(folder), out, "int8", stage=second)
    load(out)
    assert os.listdir(tmp_path) == ["tiny.ninfer"]
