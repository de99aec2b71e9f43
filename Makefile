# make demo: set up, audit the broken example, print the report's path.   make test: set up, run every check.   make test-slow: the tests that are left out of it.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1
# Empty: bytecode is kept, or each of the hundreds of processes that the tests start would compile us anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-slow deaths lint types manual fuzz clean

demo: .venv/ready
	@echo "auditing examples/energy_flow/broken/trainer.py:step (a GRU trainer with planted faults) ..."
	@cd examples/energy_flow/broken && ../../../$(BIN)/audit run trainer:step --steps 50 --out $(CURDIR)/audits/demo-$$(date +%Y%m%d-%H%M%S)

# Files go to the two workers in the order of tests/conftest.py: those that take longest first, so that both end together.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: .venv/ready-dev lint types
	$(PYTEST)

test-slow: .venv/ready-dev
	$(PYTEST) -m slow --ignore tests/deaths

# Every way to die in tests/deaths (about half an hour on two cores); `make test` runs the quick ones of them.
deaths: .venv/ready-dev
	$(BIN)/python -m pytest tests/deaths -m "slow or not slow" -n 2

lint: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready-dev
	$(BIN)/mypy

# Mutants of all that audit reads of strangers (docs/fuzzing.md); failures are kept in fuzz/corpus.
N ?= 50000
fuzz: .venv/ready-dev
	$(BIN)/python -m fuzz --number $(N)

manual: .venv/ready
	$(BIN)/python -m auditor.explain --write

# torch first and pinned: unpinned, it brings gigabytes of CUDA packages.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/ready-dev: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv audits build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
