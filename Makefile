# What a newcomer needs: `make demo`, `make test`. Everything is installed into .venv by the targets themselves.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
JOBS ?= 2

.PHONY: demo test test-slow test-data mutations lint benchmark clean

demo: $(VENV)/run  ## the embedded example: four methods, three seeds, no download
	$(BIN)/fedprior run digits-mclr --method local --method fedavg --method pfedme --method mh --seeds 3 --overwrite

test: lint  ## lint, types, tests (under ten minutes on two cores)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow"

test-slow: $(VENV)/dev  ## the checks that take minutes
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m slow

mutations: $(VENV)/dev  ## does every method's own test notice a planted error? (minutes)
	$(BIN)/python tests/mutate.py

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: $(VENV)/torch  ## speed and memory, as JSON
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/scale.py

# One stamp file per set of dependencies, so that nothing is installed twice.
$(VENV)/base:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/run: $(VENV)/base pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/dev: $(VENV)/base pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[dev,hub]"
	touch $@ $(VENV)/run

$(VENV)/torch: $(VENV)/dev pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[torch]"
	touch $@

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .hypothesis
