"""What a hybrid's checkpoint carries beside its text model: kept in artifacts, loaded only when asked for."""

import shutil
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
from ninfer_jax.artifact.summary import summarise
from ninfer_jax.errors import CorruptModelError, ModelLoadError, UnsupportedModelError
from ninfer_jax.models.groups import abstract_groups
from ninfer_jax.models.identities import identity_config
from ninfer_jax.models.registry import architecture
from ninfer_jax.models.weights import num_parameters, spec_leaves
from tests.artifact import checkpoints
from tests.models import hybrid_cases

GROUPS = ("mtp", "vision")


def multimodal(name: str) -> dict[str, Any]:
    text = {**hybrid_cases.CONFIGS[name], "mtp_num_hidden_layers": 1}
    return {
        **hybrid_cases.MULTIMODAL,
        "model_type": text["model_type"].removesuffix("_text"),
        "text_config": text,
    }


CONFIG = multimodal("dense")


def group_tensors(config: dict[str, Any]) -> checkpoints.Tensors:
    rng = np.random.default_rng(1)
    return {
        name: rng.standard_normal(shape, np.float32)
        for spec in spec_leaves(abstract_groups(architecture(config).parse_config(config)))
        for name, shape in zip(spec.sources, spec.source_shapes, strict=True)
    }


def write(path: Path, config: dict[str, Any] = CONFIG, **changes: Any) -> HuggingFaceSource:
    """A folder with both groups; ``changes`` replaces tensors, None takes one away."""
    tensors = {**checkpoints.tensors(config), **group_tensors(config), **changes}
    kept = {name: array for name, array in tensors.items() if array is not None}
    return HuggingFaceSource(checkpoints.write_folder(path / "hybrid", config, kept))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> HuggingFaceSource:
    return write(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def made(source: HuggingFaceSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("artifact") / "h.ninfer"
    convert(source, out, "int8")
    return out


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy.ninfer"))


def equal(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("name", "weights"), [("dense", "f32"), ("sparse", "bf16"), ("sparse_odd", "int8")])
def test_an_artifact_carries_what_the_folder_has(tmp_path: Path, name: str, weights: Any) -> None:
    source = write(tmp_path, multimodal(name))
    manifest = convert(source, tmp_path / "h.ninfer", weights)
    assert manifest.source["left_aside"] == {}
    from_folder, restored = (
        load(path, weights=weights, groups=GROUPS) for path in (source.path, tmp_path / "h.ninfer")
    )
    equal(from_folder.groups, restored.groups)
    equal(from_folder.weights, restored.weights)
    assert from_folder.weight_bytes == restored.weight_bytes
    assert read_manifest(tmp_path / "h.ninfer") == manifest


def test_stored_layouts(source: HuggingFaceSource) -> None:
    tensors = group_tensors(CONFIG)
    groups = load(source.path, weights="f32", groups=GROUPS).groups
    np.testing.assert_array_equal(groups["mtp"].fc, tensors["mtp.fc.weight"])
    keys = tensors["mtp.layers.0.self_attn.k_proj.weight"]
    np.testing.assert_array_equal(groups["mtp"].layer.mixer.qkv[256 : 256 + len(keys)], keys)
    kernel = tensors["model.visual.patch_embed.proj.weight"]
    np.testing.assert_array_equal(groups["vision"].patch.weight, kernel.reshape(len(kernel), -1))


def test_only_what_is_asked_for_is_read(made: Path, copy: Path) -> None:
    """The folders of the others need not even be there."""
    assert load(copy).groups == {}
    shutil.rmtree(copy / "groups" / "vision")
    assert load(copy, groups=["mtp"]).groups.keys() == {"mtp"}
    shutil.rmtree(copy / "groups")
    equal(load(copy).weights, load(made).weights)


def test_the_tower_is_not_quantised(made: Path) -> None:
    """It is small, and runs once an image."""
    groups = Artifact(made).manifest.groups
    assert (groups["mtp"].weight_format, groups["vision"].weight_format) == ("int8", "bf16")
    assert groups["vision"].tensors["blocks.0.qkv.weight"].dtype == "bfloat16"
    assert groups["mtp"].tensors["fc.values"].dtype == "int8"


def test_inspect_counts_them(source: HuggingFaceSource, made: Path) -> None:
    stored = group_tensors(CONFIG)
    mtp = [array for name, array in stored.items() if name.startswith("mtp.")]
    folder, artifact = summarise(source.path), summarise(made, verify=True)
    assert (folder.groups["mtp"].num_tensors, folder.groups["mtp"].nbytes) == (
        len(mtp),
        sum(array.nbytes for array in mtp),
    )
    assert folder.weight_bytes == sum(array.nbytes for array in checkpoints.tensors(CONFIG).values())
    assert folder.num_parameters == artifact.num_parameters
    assert artifact.groups.keys() == folder.groups.keys() == {"mtp", "vision"}


def test_a_damaged_group_is_refused_when_it_is_asked_for(copy: Path) -> None:
    file = max((copy / "groups" / "mtp").rglob("*"), key=lambda path: path.stat().st_size * path.is_file())
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    load(copy, groups=["vision"])
    name = file.relative_to(copy).as_posix()
    for refused in (lambda: load(copy, groups=["mtp"]), lambda: summarise(copy, verify=True)):
        with pytest.raises(CorruptModelError, match="wrong hash") as error:
            refused()
        assert error.value.field == name


def test_a_stray_file_of_a_group_is_refused(copy: Path) -> None:
    (copy / "groups" / "mtp" / "stray").write_bytes(b"x")
    with pytest.raises(CorruptModelError, match="groups/mtp/stray is left over"):
        load(copy, groups=["mtp"])


def test_group_tables_against_the_model(copy: Path) -> None:
    manifest = read_manifest(copy)
    group = manifest.groups["mtp"]
    tensors = {name: entry for name, entry in group.tensors.items() if name != "norm"}
    changed = replace(manifest, groups={**manifest.groups, "mtp": replace(group, tensors=tensors)})
    (copy / "ninfer.json").write_bytes(changed.to_json())
    with pytest.raises(CorruptModelError, match="tensor norm is missing"):
        load(copy, groups=["mtp"])


def test_a_group_that_nobody_knows(copy: Path) -> None:
    manifest = read_manifest(copy)
    strange = replace(manifest, groups={"../weights": manifest.groups["mtp"]})
    (copy / "ninfer.json").write_bytes(strange.to_json())
    with pytest.raises(UnsupportedModelError, match="no group"):
        load(copy)


def test_an_artifact_without_the_member_has_no_groups(copy: Path) -> None:
    """As they were written before there were groups."""
    bare = replace(read_manifest(copy), groups={}).to_json()
    body = bare[: bare.rindex(b',\n  "sha256"')].replace(b',\n  "groups": {\n\n  }', b"")
    assert b'"groups": {' not in body
    from hashlib import sha256

    (copy / "ninfer.json").write_bytes(body + b',\n  "sha256": "%b"\n}\n' % sha256(body).hexdigest().encode())
    assert load(copy).groups == {}
    with pytest.raises(ModelLoadError, match="no mtp weights"):
        load(copy, groups=["mtp"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mtp.norm.weight": None}, r"tensor mtp\.norm\.weight is missing"),
        ({"mtp.extra.weight": np.ones(3, np.float32)}, r"tensor mtp\.extra\.weight is left over"),
        ({"mtp.fc.weight": np.ones((48, 48), np.float32)}, r"mtp\.fc\.weight has shape \[48, 48\]"),
        ({"model.visual.blocks.1.norm2.bias": None}, r"blocks\.1\.norm2\.bias is missing"),
        (
            {"model.visual.blocks.2.norm2.bias": np.ones(48, np.float32)},
            r"blocks\.2\.norm2\.bias is left over",
        ),
    ],
)
def test_a_group_is_whole_or_left_aside(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Text is served beside a broken group; to carry or to load it is refused by name."""
    source = write(tmp_path, **changes)
    broken = "mtp" if next(iter(changes)).startswith("mtp") else "vision"
    assert load(source.path, weights="f32").groups == {}
    for refused in (
        lambda: convert(source, tmp_path / "h.ninfer", "f32"),
        lambda: load(source.path, groups=[broken]),
    ):
        with pytest.raises(CorruptModelError, match=message):
            refused()
    manifest = convert(source, tmp_path / "h.ninfer", "f32", without=[broken])
    assert manifest.groups.keys() == {*GROUPS} - {broken}
    assert manifest.source["left_aside"].keys() == {broken}


def test_a_group_that_the_model_has_not(tmp_path: Path) -> None:
    text = hybrid_cases.CONFIGS["dense"]
    folder = checkpoints.write_folder(tmp_path / "t", text, checkpoints.tensors(text))
    with pytest.raises(ModelLoadError, match="no vision weights") as error:
        load(folder, groups=["vision"])
    assert error.value.field == "vision"


def test_a_group_that_the_configuration_does_not_describe_is_left_aside(tmp_path: Path) -> None:
    text = {**CONFIG["text_config"], "mtp_num_hidden_layers": 0}
    source = write(
        tmp_path, {**CONFIG, "text_config": text}, **{"mtp.fc.weight": np.ones((2, 3), np.float32)}
    )
    manifest = convert(source, tmp_path / "h.ninfer", "f32")
    assert manifest.groups.keys() == {"vision"}
    assert manifest.source["left_aside"] == {"mtp": 1}


@pytest.mark.parametrize(("identity", "tensors", "parameters"), [("qwen3.6-35b-a3b", 1045, 35_951_822_704)])
def test_published_totals(identity: str, tensors: int, parameters: int) -> None:
    """Text, prediction head and tower together are the whole checkpoint, to the parameter."""
    config = identity_config(identity)
    module = architecture(config)
    parsed = module.parse_config(config)
    specs = (module.abstract(parsed), abstract_groups(parsed))
    assert num_parameters(specs) == parameters
    assert sum(len(spec.sources) for spec in spec_leaves(specs)) == tensors
