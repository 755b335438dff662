"""What the reader of compiled programs sees, and (where XLA's GPU compiler is) real programs for two GPUs."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer_jax.engine.aot import count_kernels, large_moves, moves
from ninfer_jax.engine.gpu_targets import TARGETS, gpu_target, prepare_environment
from ninfer_jax.errors import ConfigError

ROOT = Path(__file__).parents[2]
MODULE = """\
HloModule jit_f, is_scheduled=true

%fused_computation (param_0: bf16[64,128]) -> bf16[128,64] {
  %param_0 = bf16[64,128]{1,0} parameter(0)
  ROOT %transpose.1 = bf16[128,64]{1,0} transpose(%param_0), dimensions={1,0}
}

%fused_computation.1 (param_0.1: f32[64,128]) -> f32[64,128] {
  %param_0.1 = f32[64,128]{1,0} parameter(0)
  %copy.9 = f32[64,128]{1,0} copy(%param_0.1)
  ROOT %add.1 = f32[64,128]{1,0} add(%copy.9, %copy.9)
}

%body (param.2: s8[8,64,128]) -> s8[1,64,128] {
  %param.2 = s8[8,64,128]{2,1,0} parameter(0)
  ROOT %dynamic-slice.3 = s8[1,64,128]{2,1,0} dynamic-slice(%param.2), dynamic_slice_sizes={1,64,128}
}

ENTRY %main (p.0: bf16[64,128], p.1: f32[64,128]) -> f32[64,128] {
  %p.0 = bf16[64,128]{1,0} parameter(0)
  %p.1 = f32[64,128]{1,0} parameter(1)
  %fusion = bf16[128,64]{1,0} fusion(%p.0), kind=kInput, calls=%fused_computation
  %copy.2 = f32[64,128]{1,0} copy(%p.1)
  ROOT %fusion.1 = f32[64,128]{1,0} fusion(%copy.2), kind=kLoop, calls=%fused_computation.1
}
"""


def test_moves_are_seen_bare_in_loops_and_as_the_end_of_a_fusion():
    seen = {(move.operation, move.nbytes) for move in moves(MODULE)}
    assert seen == {("transpose", 16384), ("copy", 32768), ("dynamic-slice", 8192)}
    assert [move.operation for move in large_moves(MODULE, 20_000)] == ["copy"]
    assert count_kernels(MODULE) == 3


def test_unknown_gpu_is_refused_with_the_names():
    with pytest.raises(ConfigError, match="h200"):
        gpu_target("voodoo2")


def test_environment_is_prepared_or_the_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    environ = {"XLA_FLAGS": "--xla_dump_to=x"}
    prepare_environment(environ)
    assert environ["XLA_FLAGS"] == "--xla_dump_to=x --xla_gpu_autotune_level=0"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="jax-cuda12-plugin"):
        prepare_environment({})


def test_targets_describe_themselves():
    assert "major: 12 minor: 0 feature_extension: ACCELERATED_FEATURES" in TARGETS["rtx5090"].config_text()
    assert "major: 8 minor: 9 }" in TARGETS["rtx4090"].config_text()


def plan_json(*arguments: str) -> dict:
    command = [sys.executable, "-m", "ninfer_jax.cli.main", "plan", *arguments, "--json"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None,
    reason="needs XLA's GPU compiler (jax-cuda12-plugin)",
)
@pytest.mark.parametrize(
    ("identity", "gpu", "weights"), [("qwen3.8-27b", "rtx5090", "int8"), ("qwen3.6-35b-a3b", "h200", "bf16")]
)
def test_two_superblocks_of_the_real_widths_compile(identity, gpu, weights):
    """State is aliased whole, decode makes no copy of a weight or a pool, the prediction is within 2%."""
    flags = ("--layers", "8", "--prefill-chunk", "64", "--max-context", "4096", "--kv-capacity", "16384")
    facts = plan_json(identity, "--gpu", gpu, "--weights", weights, *flags, "--compile")
    memory = facts["memory"]
    total = memory["total"]
    assert facts["compiled_total"] == pytest.approx(total, rel=0.02)
    for program in facts["programs"]:
        assert program["aliased"] >= sum(memory["kv_pools"].values()) + memory["state"], program["name"]
        assert program["big_moves"] == [], program["name"]
