"""What fits a device, what does not, and whether the advice helps."""

from dataclasses import replace

import pytest

from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.device_memory import HEADROOM_BYTES, MemoryBudget, host_memory, present_budget
from ninfer_jax.engine.fit import check_fits, remedies, with_largest_kv_pool
from ninfer_jax.engine.ledger import make_ledger
from ninfer_jax.errors import ConfigError
from tests.engine.test_ledger import DENSE, HYBRID, deployed

CONFIG = EngineConfig(max_context=256, kv_capacity=1024, max_concurrency=4, prefill_chunk=64)


def missing(asked, num_bytes, runtime=0):
    """A device that lacks ``num_bytes`` for ``asked``."""
    return MemoryBudget("tiny gpu", make_ledger(asked, runtime=runtime).total - num_bytes, runtime)


def apply(asked, flag, value):
    """``asked`` as the flags that a remedy names would make it."""
    value, *others = value.split(" with ")
    if flag == "--weights":
        changed = replace(asked, weights=value)
    else:
        changed = asked.with_settings(**{flag.removeprefix("--").replace("-", "_"): int(value)})
    return apply(changed, *others[0].split(" ")) if others else changed


def test_what_fits_to_the_byte_fits():
    asked = deployed(HYBRID, CONFIG)
    assert check_fits(asked, missing(asked, 0, runtime=77)).runtime == 77
    with pytest.raises(ConfigError):
        check_fits(asked, missing(asked, 1, runtime=77))


def test_the_error_has_the_ledger_and_what_to_lower():
    asked = deployed(HYBRID, CONFIG)
    page = make_ledger(asked).page_bytes
    with pytest.raises(ConfigError) as caught:
        check_fits(asked, missing(asked, 2 * page))
    message = caught.value.message
    for words in (
        "tiny gpu has",
        "weights in bfloat16",
        "KV pools of 1,024 tokens in bfloat16",
        "state of 4",
    ):
        assert words in message
    assert "--kv-capacity 896" in message
    assert caught.value.field == "--kv-capacity"


@pytest.mark.parametrize("layout", ["paged", "contiguous"])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.4, 0.6])
@pytest.mark.parametrize("hf_config", [DENSE, HYBRID])
@pytest.mark.parametrize("kv_capacity", [256, 2048])
def test_every_remedy_is_one(hf_config, share, layout, kv_capacity):
    asked = deployed(hf_config, replace(CONFIG, cache_layout=layout, kv_capacity=kv_capacity), "f32")
    budget = missing(asked, int(share * make_ledger(asked).total))
    for flag, value in remedies(asked, budget):
        changed = apply(asked, flag, value)
        assert changed != asked
        assert check_fits(changed, budget).total <= budget.memory, (flag, value)
        assert layout == "contiguous" or changed.config.kv_capacity >= changed.config.max_context


def test_no_remedy_is_said_too():
    asked = deployed(DENSE, CONFIG, "int8")
    assert list(remedies(asked, MemoryBudget("thimble", 1000))) == []
    with pytest.raises(ConfigError, match="smaller model"):
        check_fits(asked, MemoryBudget("thimble", 1000))


def test_auto_leaves_the_headroom_and_wastes_no_page():
    asked = deployed(HYBRID, CONFIG)
    budget = MemoryBudget("gpu", HEADROOM_BYTES + make_ledger(asked).total + 1_000_000)
    grown = make_ledger(with_largest_kv_pool(asked, budget))
    left = budget.memory - HEADROOM_BYTES - grown.total
    assert 0 <= left < grown.page_bytes
    small = with_largest_kv_pool(asked, MemoryBudget("gpu", HEADROOM_BYTES))
    assert small.config.kv_capacity == CONFIG.max_context


def fake_root(tmp_path, *, available_kib=None, groups=None):
    (tmp_path / "proc/self").mkdir(parents=True)
    if available_kib is not None:
        (tmp_path / "proc/meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {available_kib} kB\n")
    for path, (limit, used, files) in (groups or {}).items():
        (tmp_path / "proc/self/cgroup").write_text("0::/service/one\n")
        folder = tmp_path / "sys/fs/cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")
    return tmp_path


def test_host_memory_is_what_the_machine_has_available(tmp_path):
    assert host_memory(fake_root(tmp_path, available_kib=4)) == 4096


def test_host_memory_is_what_the_tightest_control_group_leaves(tmp_path):
    groups = {"service/one": ("max", 10, 0), "service": (1000, 700, 50), "": ("max", 0, 0)}
    assert host_memory(fake_root(tmp_path, available_kib=4, groups=groups)) == 350


def test_host_memory_without_a_proc_folder_is_the_machine(tmp_path):
    assert host_memory(tmp_path) > 2**20


def test_the_present_device_has_memory():
    budget = present_budget()
    assert budget.name == "cpu"
    assert budget.memory > 2**20
