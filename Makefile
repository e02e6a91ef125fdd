PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.installed
TESTS  := $(BIN)/python -m pytest -n 2
# Tests fill the cores by themselves; threads of NumPy's matrix products would only wait for one another.
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: help venv demo check format test test-all golden gpu bench docs
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed 's/:.*  ## /\t/' | expand -t 12

$(READY): pyproject.toml
	$(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet --editable '.[test]' && touch $@

venv: $(READY)  ## make .venv with weft and its test tools

demo: $(READY)  ## run the copy kernel: on a GPU if there is one, else in the simulator
	$(BIN)/python examples/copy_1d.py

check: $(READY)  ## lint, formatting and types; the one command before a commit
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright

format: $(READY)  ## let ruff fix and format what it can
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

test: $(READY)  ## every test that needs no GPU, one case per axis (under 10 minutes on two cores)
	$(TESTS)

test-all: $(READY)  ## the whole matrices too
	$(TESTS) -m "not gpu"

golden: $(READY)  ## rewrite the golden texts under tests/golden from what is emitted now
	$(TESTS) --update-golden

gpu: $(READY)  ## the tests that need a GPU (needs PyTorch with CUDA)
	$(BIN)/python -m pytest -m gpu

bench: $(READY)  ## time the kernels against their peers on a GPU, in one interleaved run
	$(BIN)/python benchmarks/run.py

docs: $(READY)  ## build the documentation into site/
	$(BIN)/python -m pip install --quiet --editable '.[docs]' && $(BIN)/zensical build --strict
