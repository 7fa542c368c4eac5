# Each target sets up what it needs; a second run finds it in place. Modules are compiled when they
# are first imported: most of those that are installed never are.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/.installed

# Compiled modules are kept, also where the environment says not to: a suite of many processes
# would compile everything again in each of them.
export PYTHONDONTWRITEBYTECODE =

.PHONY: install demo test test-instrument test-all test-bare coverage mutants lint bench gpu docs figures clean

$(STAMP): pyproject.toml lab/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[models,lightning,torchmetrics,huggingface,ray,shards,hdf5]" --editable "./lab[attack,ray]" --group dev
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/ncscope demo

test: $(STAMP)
	$(BIN)/python -m pytest

# The instrument alone, which needs nothing of the laboratory.
test-instrument: $(STAMP)
	$(BIN)/python -m pytest tests

test-all: $(STAMP)
	$(BIN)/python -m pytest -m "not gpu"

# The share of lines and branches that the default suite runs, of processes that it starts too.
coverage: $(STAMP)
	$(BIN)/python -m pytest --cov --cov-report=term --cov-report=html

# The instrument alone, in an environment without the libraries of the laboratory.
BARE := .venv-bare
$(BARE)/.installed: pyproject.toml
	test -x $(BARE)/bin/python || $(PYTHON) -m venv $(BARE)
	$(BARE)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BARE)/bin/python -m pip install --quiet --no-compile --editable . --group bare
	touch $@

# Both environments.
install: $(STAMP) $(BARE)/.installed

test-bare: $(BARE)/.installed
	$(BARE)/bin/python -m pytest --bare tests

# The result is kept in mutants.jsonl: an interrupted run goes on where it was.
mutants: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.mutants --sample 600 --seed 0

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/plain_english.py src lab/src benchmarks docs tools

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# Tests marked gpu, benchmarks and two experiments on one GPU, in at most 40 minutes; the report is
# gpu-report.md. Without a GPU it says so and exits with 2.
gpu: $(STAMP)
	$(BIN)/python -m benchmarks.gpu_report --out gpu-report.md

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures and tables that the README and the docs show; minutes.
figures: $(STAMP)
	$(BIN)/ncscope demo
	$(BIN)/python docs/figures/demo.py
	$(BIN)/python docs/figures/batch_mir.py
	$(BIN)/python docs/figures/typical.py

clean:
	rm -rf $(VENV) $(BARE) site .mypy_cache .ruff_cache .pytest_cache htmlcov .coverage*
