"""Every Pallas kernel at the models' own shapes, compiled for two GPUs where XLA's compiler for them is."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from profiles.device.elsewhere import compile_for
sys.exit(compile_for(sys.argv[1], forms=("Pallas",)))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None,
    reason="needs XLA's GPU compiler (jax-cuda12-plugin)",
)
@pytest.mark.parametrize("gpu", ["h200", "rtx5090"])
def test_pallas_kernels_compile_at_true_shapes(gpu):
    """In a process of its own: jax reads what the compiler needs when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, gpu], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for kernel in ("attention decode B=8, context 32,768, 27B", "delta rule decode B=1, 35B", "experts int8"):
        assert f"\n{kernel}" in f"\n{done.stdout}"
