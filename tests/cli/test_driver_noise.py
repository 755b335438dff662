"""The GPU compiler's remarks are dropped from stderr, and nothing else is."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer_jax.cli.driver_noise import without_driver_noise

ROOT = Path(__file__).parents[2]
REMARKS = (
    b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    b"I0000 00:00:1.2 1 cudart_stub.cc] Could not find cuda drivers on your machine, GPU will not be used.\n"
)
ERROR = b"E0000 00:00:1.2    1 cuda_executor.cc:1] no kernel image\nwithout an end of line"


@pytest.fixture(autouse=True)
def plugin(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_the_remarks_are_dropped_and_errors_are_not(capfdbinary):
    with without_driver_noise():
        os.write(2, REMARKS + ERROR)
    os.write(2, REMARKS)
    assert capfdbinary.readouterr().err == ERROR + REMARKS


def test_an_exception_passes_and_stderr_is_back(capfdbinary):
    def fail():
        os.write(2, ERROR)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), without_driver_noise():
        fail()
    os.write(2, b"after")
    assert capfdbinary.readouterr().err == ERROR + b"after"


def test_the_last_words_of_a_process_that_aborts_are_heard():
    script = f"""
import importlib.util, os
from ninfer_jax.cli.driver_noise import without_driver_noise
importlib.util.find_spec = lambda name: object()
with without_driver_noise():
    os.write(2, {REMARKS + ERROR!r})
    os.abort()
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGABRT, ERROR)


def test_no_other_process_where_no_plugin_is_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "Popen", None)
    with without_driver_noise():
        pass
