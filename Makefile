# What a newcomer needs: `make demo`, `make test`. Everything is installed into .venv by the targets themselves.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
JOBS ?= 2
# The versions to install: CONSTRAINTS=constraints-oldest.txt for the oldest allowed, CONSTRAINTS= for the newest.
CONSTRAINTS ?= constraints.txt
INSTALL = $(BIN)/python -m pip install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
# COVERAGE=1 makes `make test` measure what it covers, and fail below the floor that pyproject.toml sets.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-slow test-deploy mutations lint format benchmark clean

help:  ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/run  ## the embedded example: four methods, three seeds, no download
	$(BIN)/fedprior run digits-mclr --method local --method fedavg --method pfedme --method mh --seeds 3 --overwrite

test: lint test-quick  ## lint, types and the tests that take seconds (COVERAGE=1: and what they cover)

# Nearly all their time is compiling, of which the compiler's optimization is a fifth: here they do without, and those that
# compare bits run again with the slow tests, compiled as users compile.
test-quick: $(VENV)/dev  ## the tests that take seconds, without lint
	XLA_FLAGS="$$XLA_FLAGS --xla_backend_optimization_level=0" $(PYTEST) -m "not slow and not deploy" $(if $(COVERAGE),--cov=fedprior)

test-slow: $(VENV)/dev  ## the tests that take minutes
	$(PYTEST) -m "slow or bits"

test-deploy: $(VENV)/dev  ## a real federation on this machine, with Flower's own commands (minutes)
	$(BIN)/python -m pytest -m deploy

mutations: $(VENV)/dev  ## plant errors, one at a time: the tests must notice each of them (minutes)
	$(BIN)/python tests/mutate.py

lint: $(VENV)/dev  ## style and types of the package, the tests and the scripts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks experiments

format: $(VENV)/dev  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(VENV)/torch  ## speed and memory, as JSON
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/scale.py

# One stamp file per set of dependencies, so that nothing is installed twice.
$(VENV)/base:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/run: $(VENV)/base pyproject.toml $(CONSTRAINTS)
	$(INSTALL) --editable .
	touch $@

$(VENV)/dev: $(VENV)/base pyproject.toml $(CONSTRAINTS)
	$(INSTALL) --editable ".[dev,hub,flower]"
	touch $@ $(VENV)/run

$(VENV)/torch: $(VENV)/dev pyproject.toml $(CONSTRAINTS)
	$(INSTALL) --editable ".[torch]"
	touch $@

clean:  ## remove everything that these targets made
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .hypothesis .coverage
