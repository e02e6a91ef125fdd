PYTHON ?= python3
BIN    := .venv/bin
# Neighbours run in one process, and share what they compile.
TESTS  := $(BIN)/python -m pytest -n 2 --dist worksteal
SCALE  ?= 1
# One order of sets in each run; several tests start processes that have others.
export PYTHONHASHSEED ?= 0
# Tests fill the cores by themselves; threads of NumPy's matrix products would only wait for one another.
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help venv demo check format test test-torch test-all stress golden gpu bench docs
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed 's/:.*  ## /\t/' | expand -t 12

# One stamp for each extra of pyproject.toml: a target installs what it needs, and nothing more.
.venv/.installed-%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[$*]' && touch $@

venv: .venv/.installed-check  ## make .venv with weft and every tool of the targets below

demo: .venv/.installed-sass  ## run the copy kernel: on a GPU if PyTorch with CUDA is installed, else in the simulator
	$(BIN)/python examples/copy_1d.py

check: .venv/.installed-check  ## lint, formatting and types; the one command before a commit
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright && $(BIN)/python tests/typing/user_project.py

format: .venv/.installed-check  ## let ruff fix and format what it can
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

test: .venv/.installed-test  ## the tests that need no GPU, one case per axis (under 10 minutes on two cores)
	$(TESTS)

test-torch: .venv/.installed-test  ## the tests that need PyTorch, which you install (its CPU build is enough)
	@$(BIN)/python -c 'import torch' || { echo 'Install PyTorch first: $(BIN)/python -m pip install torch'; exit 1; }
	$(TESTS) -m "torch and not gpu and not matrix and not stress"

test-all: .venv/.installed-test  ## the same with every combination of parameters
	$(TESTS) -m "not gpu and not stress and not torch"

stress: .venv/.installed-test  ## the fuzzers under tests/stress, SCALE=10 times as many cases, and fresh cases of random tests
	$(TESTS) tests/stress -m stress --stress-scale $(SCALE)
	$(TESTS) --ignore tests/stress -m "(stress or hypothesis) and not gpu and not torch" --hypothesis-profile fresh

golden: .venv/.installed-test  ## rewrite the golden texts under tests/golden and the generated tables of docs/reference
	$(TESTS) --update-golden

gpu: .venv/.installed-test  ## the tests that need a GPU (needs PyTorch with CUDA)
	$(BIN)/python -m pytest -m gpu

bench: .venv/.installed-test  ## time the kernels against Gluon and PyTorch on a GPU (needs both installed)
	$(BIN)/python benchmarks/run.py

docs: .venv/.installed-docs  ## build the documentation into site/
	$(BIN)/zensical build --strict
