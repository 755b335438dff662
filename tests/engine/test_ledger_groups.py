"""Weights beside the text decoder are in the ledger when they are asked for, to the byte."""

from dataclasses import replace

import jax
import pytest

from ninfer_jax.artifact.convert import convert
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine import build
from ninfer_jax.engine.device_memory import MemoryBudget
from ninfer_jax.engine.ledger import make_ledger
from ninfer_jax.errors import ConfigError
from tests.artifact.test_groups import GROUPS, multimodal, write

CONFIG = EngineConfig(max_context=128, kv_capacity=128, prefill_chunk=16)


@pytest.fixture
def checked(monkeypatch):
    """The deployments that were checked, on a device of ``memory`` bytes."""

    def settings(model):
        return CONFIG

    def load(path, memory, **how):
        seen = []
        budget = MemoryBudget("tiny gpu", memory)
        monkeypatch.setattr(build, "present_budget", lambda: budget)
        monkeypatch.setattr(
            build, "check_fits", lambda asked, budget: (seen.append(asked), check_fits(asked, budget))
        )
        return build.load_checked(path, settings, **how), seen[0]

    check_fits = build.check_fits
    return load


@pytest.mark.parametrize("kind", ["folder", "artifact"])
@pytest.mark.parametrize(("name", "weights"), [("dense", "f32"), ("sparse", "bf16"), ("dense", "int8")])
def test_what_is_counted_is_what_is_loaded(tmp_path, checked, kind, name, weights):
    source = write(tmp_path, multimodal(name))
    path = source.path if kind == "folder" else tmp_path / "h.ninfer"
    if kind == "artifact":
        convert(source, path, weights)
    model, asked = checked(path, 1 << 40, weights=weights, groups=GROUPS)
    ledger = make_ledger(asked)
    assert ledger.groups == {
        group: sum(array.nbytes for array in jax.tree.leaves(model.groups[group])) for group in GROUPS
    }
    assert sum(ledger.weights.values()) + sum(ledger.groups.values()) == model.weight_bytes
    without = make_ledger(replace(asked, groups={}))
    assert ledger.total == without.total + sum(ledger.groups.values())
    assert ("mtp weights", ledger.groups["mtp"]) in ledger.entries()


def test_a_group_that_does_not_fit_is_refused_by_name_before_anything_is_loaded(tmp_path, checked):
    source = write(tmp_path)
    _, asked = checked(source.path, 1 << 40)
    assert asked.groups == {}
    memory = make_ledger(asked).total
    checked(source.path, memory)
    with pytest.raises(ConfigError, match="vision weights"):
        checked(source.path, memory, groups=["vision"])


def test_less_than_a_page_is_left_beside_groups(tmp_path, checked):
    _, asked = checked(write(tmp_path).path, 1 << 40, groups=["mtp"])
    ledger = make_ledger(asked)
    memory = ledger.total + 10 * ledger.page_bytes + 1
    grown = asked.with_settings(kv_capacity=ledger.largest_kv_capacity(memory))
    assert 0 <= memory - make_ledger(grown).total < ledger.page_bytes
