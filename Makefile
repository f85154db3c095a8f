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
.PHONY: help demo test test-quick test-slow test-deploy test-browser chromium mutations lint format docs benchmark clean

help:  ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/run  ## the embedded example: four methods, three seeds, no download, and a page of what came of it
	$(BIN)/fedprior run digits-mclr --method local --method fedavg --method pfedme --method mh --seeds 3 --overwrite
	$(BIN)/fedprior report runs/digits-mclr --out runs/digits-mclr/report.html

test: lint test-quick  ## lint, types and the tests that take seconds (COVERAGE=1: and what they cover)

# Nearly all their time is compiling, of which the compiler's optimization is a fifth: here they do without, and those that
# compare bits run again with the slow tests, compiled as users compile.
test-quick: $(VENV)/dev  ## the tests that take seconds, without lint
	XLA_FLAGS="$$XLA_FLAGS --xla_backend_optimization_level=0" $(PYTEST) -m "not slow and not deploy and not browser" $(if $(COVERAGE),--cov=fedprior)

test-slow: $(VENV)/dev  ## the tests that take minutes
	$(PYTEST) -m "slow or bits"

test-deploy: $(VENV)/dev $(VENV)/nginx  ## a real federation on this machine: docs/deploy.md, command by command (minutes)
	$(BIN)/python -m pytest -m deploy -rs

test-browser: $(VENV)/browser chromium  ## the report page in Chromium, which is installed if it can be (minutes)
	AXE=$(AXE)/node_modules/axe-core/axe.min.js $(BIN)/python -m pytest -m browser tests/report

# Debian's browser. Who may not install it is told what to ask for.
chromium:
	@command -v $${FEDPRIOR_CHROMIUM:-chromium} >/dev/null \
	|| { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	|| { echo "install Chromium (sudo apt-get install chromium), or name one with FEDPRIOR_CHROMIUM=path" >&2; exit 1; }

mutations: $(VENV)/dev  ## plant errors, one at a time: the tests must notice each of them (minutes)
	$(BIN)/python tests/mutate.py

lint: $(VENV)/dev  ## style and types of the package, the tests and the scripts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks experiments
	MYPYPATH=docs/_ext $(BIN)/mypy docs/_ext docs/conf.py

format: $(VENV)/dev  ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Once everything is installed this needs no network, and neither do the pages.
docs: $(VENV)/docs  ## the documentation as web pages in build/docs/html, its examples run (a minute or two)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -d build/docs/doctrees docs build/docs/html
	@echo "open build/docs/html/index.html"

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

# axe-core, which looks for what keeps people from using a page, comes from npm and is part of nothing that is shipped.
AXE = $(VENV)/npm
$(VENV)/browser: $(VENV)/dev pyproject.toml $(CONSTRAINTS)
	$(INSTALL) --editable ".[browser]"
	npm install --no-save --silent --prefix $(AXE) axe-core@4.14.0 || { echo "install npm (sudo apt-get install npm)" >&2; exit 1; }
	touch $@

$(VENV)/docs: $(VENV)/base pyproject.toml $(CONSTRAINTS)
	$(INSTALL) --editable ".[docs]"
	touch $@ $(VENV)/run

# The proxy of docs/deploy.md, where the system has none: unpacked rather than installed, which would start a server. Where
# that fails too, the tests of the proxy are skipped, visibly.
$(VENV)/nginx: $(VENV)/base
	mkdir -p $@
	command -v nginx > /dev/null \
	|| { cd $@ && { apt-get download --quiet nginx || { apt-get update -qq && apt-get download --quiet nginx; }; } && dpkg-deb --extract nginx_*.deb . ; } \
	|| true

clean:  ## remove everything that these targets made
	rm -rf $(VENV) runs build/docs docs/cards docs/reference/commands.md docs/reference/changelog.md
	rm -rf .mypy_cache .ruff_cache .hypothesis .coverage
