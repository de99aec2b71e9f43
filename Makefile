# make demo: set up, audit the broken example, print the report's path.   make test: set up, run every check.   make test-full: whole audits, the browser tests and the quick deaths, as CI does after it.   make test-slow: the tests that are left out of both.   make test-cuda: the null device, and torch's CUDA code on it.   make new-torch VERSION=2.15.0: what that torch changed.
PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_CUDA ?= torch==2.14.1 torchvision==0.29.1
BIN := .venv/bin
BIN_CUDA := .venv-cuda/bin
# Bytecode of the few modules that are imported is compiled then; of all that torch brings it takes 15 s more.
QUICK := --quiet --disable-pip-version-check --no-compile
export OMP_NUM_THREADS ?= 1
# Empty: bytecode is kept, or each of the hundreds of processes that the tests start would compile us anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-full test-slow test-cuda deaths lint types docs fuzz same mutants clean audit-deps new-torch

demo: .venv/ready
	@echo "auditing examples/energy_flow/broken/trainer.py:step (a GRU trainer with planted faults) ..."
	@cd examples/energy_flow/broken && ../../../$(BIN)/audit run trainer:step --steps 50 --out $(CURDIR)/audits/demo-$$(date +%Y%m%d-%H%M%S)

# Files go to the two workers in the order of tests/conftest.py: those that take longest first, so that both end together.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: .venv/ready-dev lint types
	$(PYTEST)
	$(BIN)/pytest nulldevice/tests

test-full: .venv/ready-dev
	$(PYTEST) -m "(full or hypothesis) and not slow" --hypothesis-profile full

test-slow: .venv/ready-dev
	$(PYTEST) -m slow --ignore tests/deaths

# A CUDA build of torch (5.5 GB) on a device without a GPU (nulldevice/README.md); needs a C compiler. Another build:
# make test-cuda TORCH_CUDA="torch==2.8.0 torchvision==0.23.0", after make clean.
ON_NULL := $(BIN_CUDA)/python -m torch_null_device -- $(BIN_CUDA)/pytest -n 2 --dist loadfile
test-cuda: .venv-cuda/ready-null
	$(ON_NULL) nulldevice/tests
	$(ON_NULL) tests/cuda

# Every way to die in tests/deaths (about half an hour on two cores); `make test-full` runs the quick ones of them.
deaths: .venv/ready-dev
	$(BIN)/python -m pytest tests/deaths -m "slow or full or not slow" -n 2

lint: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml auditor rules reports nulldevice/torch_null_device

types: .venv/ready-dev
	$(BIN)/mypy

# Mutants of all that audit reads of strangers (docs/log/fuzzing.md); failures are kept in fuzz/corpus.
N ?= 50000
fuzz: .venv/ready-dev
	$(BIN)/python -m fuzz --number $(N)

# Findings of this tree against those of another commit: the same recordings judged, ten programs audited by both. By hand.
BASE ?= HEAD
same: .venv/ready-dev
	$(BIN)/python -m benchmarks.same $(BASE)

# A sample of mutants of rules/ and auditor/evidence/ against the tests that execute them (docs/log/mutants.md): by hand. SEED=fresh draws one.
SEED ?= 1
mutants: N = 200
mutants: .venv/ready-dev
	$(BIN)/python -m pip install $(QUICK) --editable ".[mutants]"
	nice $(BIN)/python -m tests.mutation --number $(N) --seed $(SEED)

# What a torch has taken away or named anew (docs/new-torch.md), in an environment of its own: by hand.
VERSION ?= 2.15.0
new-torch: .venv-new-torch/torch-$(VERSION)
	.venv-new-torch/bin/python -m benchmarks.versions .venv-new-torch/bin/python

.venv-new-torch/torch-%:
	$(PYTHON) -m venv --clear .venv-new-torch
	.venv-new-torch/bin/python -m pip install $(QUICK) "torch==$*"
	.venv-new-torch/bin/python -m pip install $(QUICK) --editable ".[dev]"
	touch $@

# Known flaws of what we depend on: by hand, since it asks PyPI's advisory service; what that does not know fails it (--strict).
audit-deps: .venv/ready
	$(PYTHON) -m venv .venv/audit-deps
	.venv/audit-deps/bin/python -m pip install $(QUICK) pip-audit==2.10.1
	$(BIN)/python -m pip freeze --exclude-editable > .venv/audit-deps/requirements.txt
	.venv/audit-deps/bin/pip-audit --strict --no-deps --disable-pip --requirement .venv/audit-deps/requirements.txt

# The site: build/site/index.html. Strict: a link that leads nowhere fails it. First the examples of its gallery are
# audited (three minutes), where they or the auditor are newer than their reports in build/gallery.
docs: .venv/ready
	$(BIN)/python -m pip install $(QUICK) --editable ".[docs]"
	$(BIN)/python docs/make_gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

# torch first and pinned: unpinned, it brings gigabytes of CUDA packages.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(QUICK) "$(TORCH)"
	$(BIN)/python -m pip install $(QUICK) --editable ".[all]"
	touch $@

.venv/ready-dev: .venv/ready
	$(BIN)/python -m pip install $(QUICK) --editable ".[dev]"
	touch $@

.venv-cuda/ready: pyproject.toml
	$(PYTHON) -m venv .venv-cuda
	$(BIN_CUDA)/python -m pip install $(QUICK) $(TORCH_CUDA)
	$(BIN_CUDA)/python -m pip install $(QUICK) --editable ".[dev]"
	touch $@

# The wheel, as anyone installs it.
.venv-cuda/ready-null: .venv-cuda/ready nulldevice/pyproject.toml $(wildcard nulldevice/torch_null_device/*.py nulldevice/torch_null_device/csrc/*)
	$(BIN_CUDA)/python -m pip install $(QUICK) --force-reinstall --no-deps ./nulldevice
	touch $@

clean:
	rm -rf .venv .venv-cuda .venv-new-torch audits build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
