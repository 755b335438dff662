"""Names that must, may and must not be there; experts stored one by one; registered identities."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_jax.artifact.hf_source import HuggingFaceSource
from ninfer_jax.artifact.source import TensorInfo
from ninfer_jax.artifact.stacked_experts import StackedExperts, has_single_experts
from ninfer_jax.artifact.tensor_names import check_names
from ninfer_jax.errors import CorruptModelError, UnsupportedModelError
from ninfer_jax.models.base import ArraySpec
from ninfer_jax.models.identities import REGISTERED, identity_config, resolve_identity
from tests.artifact import checkpoints


def spec(*names: str) -> ArraySpec:
    return ArraySpec((len(names) * 2, 3), (None, None), names, ((2, 3),) * len(names))


def stored(*names: str) -> dict[str, TensorInfo]:
    return {name: TensorInfo((2, 3), "F32", 24) for name in names}


def test_optional_groups_are_left_aside_and_counted() -> None:
    tensors = stored("a", "mtp.fc.weight", "mtp.norm.weight", "model.visual.blocks.0.norm1.weight")
    assert check_names([spec("a")], tensors) == {"mtp": 2, "vision": 1}


def test_a_group_that_is_read_must_be_accounted_for() -> None:
    tensors = stored("a", "mtp.fc.weight", "mtp.norm.weight", "model.visual.x")
    with pytest.raises(CorruptModelError, match=r"mtp\.norm\.weight is left over"):
        check_names([spec("a"), spec("mtp.fc.weight")], tensors)
    assert check_names([spec("a"), spec("mtp.fc.weight", "mtp.norm.weight")], tensors) == {"vision": 1}


@given(st.permutations(["a", "b", "lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"]))
def test_order_does_not_matter(names: list[str]) -> None:
    assert check_names([spec("a", "b")], stored(*names)) == {}


EXPERTS, INNER, HIDDEN, TOTAL = "model.layers.0.mlp.experts", 8, 6, 4


def expert_tensors() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    shapes = {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}
    return {
        f"{EXPERTS}.{expert}.{part}_proj.weight": rng.standard_normal(shape, np.float32)
        for expert in range(TOTAL)
        for part, shape in shapes.items()
    }


def expert_source(path: Path, tensors: dict[str, Any], **members: Any) -> HuggingFaceSource:
    config = {**checkpoints.config(), **members}
    return HuggingFaceSource(checkpoints.write_folder(path / "experts", config, tensors))


def test_single_experts_are_stacked(tmp_path: Path) -> None:
    tensors = {**expert_tensors(), "other.weight": np.ones((4, 5), np.float32)}
    source = expert_source(tmp_path, tensors)
    assert has_single_experts(source.tensors)
    view = StackedExperts(source)
    assert {name: info.shape for name, info in view.tensors.items()} == {
        "other.weight": (4, 5),
        f"{EXPERTS}.gate_up_proj": (TOTAL, 2 * INNER, HIDDEN),
        f"{EXPERTS}.down_proj": (TOTAL, HIDDEN, INNER),
    }
    gate_up = view.read(f"{EXPERTS}.gate_up_proj", 1, 3)
    assert gate_up.shape == (2, 2 * INNER, HIDDEN)
    for row, expert in enumerate((1, 2)):
        np.testing.assert_array_equal(gate_up[row, :INNER], tensors[f"{EXPERTS}.{expert}.gate_proj.weight"])
        np.testing.assert_array_equal(gate_up[row, INNER:], tensors[f"{EXPERTS}.{expert}.up_proj.weight"])
    np.testing.assert_array_equal(
        view.read(f"{EXPERTS}.down_proj", 3, 4)[0], tensors[f"{EXPERTS}.3.down_proj.weight"]
    )
    np.testing.assert_array_equal(view.read("other.weight", 1, 2), np.ones((1, 5)))
    assert view.formats == {"F32": 13}


def test_experts_in_fp8_blocks(tmp_path: Path) -> None:
    """Each expert has its own scales; stacked ones have blocks on their last two axes."""
    section = {"quant_method": "fp8", "weight_block_size": [4, 4]}
    rng = np.random.default_rng(2)
    single: dict[str, Any] = {}
    for name, array in expert_tensors().items():
        grid = tuple(-(-size // 4) for size in array.shape)
        single[name] = array.astype(ml_dtypes.float8_e4m3fn)
        single[name + "_scale_inv"] = rng.uniform(0.5, 2, grid).astype(np.float32)
    stacked: dict[str, Any] = {}
    for suffix in ("", "_scale_inv"):
        parts = {
            part: np.stack([single[f"{EXPERTS}.{e}.{part}_proj.weight{suffix}"] for e in range(TOTAL)])
            for part in ("gate", "up", "down")
        }
        stacked[f"{EXPERTS}.gate_up_proj{suffix}"] = np.concatenate([parts["gate"], parts["up"]], axis=1)
        stacked[f"{EXPERTS}.down_proj{suffix}"] = parts["down"]
    one = StackedExperts(expert_source(tmp_path / "one", single, quantization_config=section))
    all_at_once = expert_source(tmp_path / "all", stacked, quantization_config=section)
    assert not has_single_experts(all_at_once.tensors)
    for name in ("gate_up_proj", "down_proj"):
        left, right = (source.read(f"{EXPERTS}.{name}", 1, 4) for source in (one, all_at_once))
        assert left.shape == right.shape
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("gone", [f"{EXPERTS}.0.up_proj.weight", f"{EXPERTS}.2.gate_proj.weight"])
def test_an_expert_that_is_missing(tmp_path: Path, gone: str) -> None:
    tensors = expert_tensors()
    del tensors[gone]
    with pytest.raises(CorruptModelError, match=f"{gone} is missing"):
        _ = StackedExperts(expert_source(tmp_path, tensors)).tensors


def test_an_expert_of_another_shape(tmp_path: Path) -> None:
    tensors = expert_tensors()
    tensors[f"{EXPERTS}.1.up_proj.weight"] = np.ones((INNER, HIDDEN + 1), np.float32)
    with pytest.raises(CorruptModelError, match=r"1\.up_proj\.weight has shape \[8, 7\]"):
        _ = StackedExperts(expert_source(tmp_path, tensors)).tensors


@pytest.mark.parametrize("name", ["Qwen3.6-27B", "qwen3.8-27b", "Qwen3.6-35B-A3B-FP8", "qwen3.6-27b-bf16"])
def test_official_names_become_identities(name: str) -> None:
    identity = name.lower().removesuffix("-fp8").removesuffix("-bf16")
    assert resolve_identity(name, identity_config(identity)) == identity


@pytest.mark.parametrize("name", ["Qwen3.6-27B-my-tune", "SmolLM2-135M-Instruct", "qwen3.6"])
def test_other_names_stay(name: str) -> None:
    assert resolve_identity(name, {"model_type": "llama"}) == name


@pytest.mark.parametrize("identity", REGISTERED)
def test_every_member_counts(identity: str) -> None:
    """Each expected member, changed alone, is refused by its full name; absent, it passes."""
    for path, members in REGISTERED[identity].items():
        for key in members:
            config = identity_config(identity)
            section = config
            for part in filter(None, path.split(".")):
                section = section[part]
            section[key] = "something else"
            with pytest.raises(UnsupportedModelError) as error:
                resolve_identity(identity, config)
            assert error.value.field == f"{path}.{key}".lstrip(".")
            del section[key]
            resolve_identity(identity, config)
