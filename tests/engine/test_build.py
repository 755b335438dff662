"""What assembling an engine tells its operator."""

import pytest

from ninfer_jax.engine import build


@pytest.mark.parametrize(
    ("backend", "available", "warns"), [("cpu", False, True), ("cpu", True, False), ("gpu", False, False)]
)
def test_a_cpu_without_its_kernels_is_told(monkeypatch, caplog, backend, available, warns):
    monkeypatch.setattr(build.jax, "default_backend", lambda: backend)
    monkeypatch.setattr(build, "is_available", lambda: available)
    build.warn_if_slow()
    assert ("Numba cannot be imported" in caplog.text) is warns
