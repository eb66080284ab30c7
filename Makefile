# Everything runs in .venv, which `make setup` makes with the Python of $(PYTHON).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
RAY_STAMP := $(VENV)/.installed-ray

.PHONY: help setup demo picture test check format bench docs clean
help: ## what each target does
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## make .venv with the stretto command in it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "stretto needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || \
	  { echo "the venv module is missing: apt-get install python3-venv"; exit 1; }
	@echo "installing stretto into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,torch]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

$(RAY_STAMP): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	@touch $@

demo: $(STAMP) ## plan two real networks, verify, simulate, and draw the page demo/index.html
	@mkdir -p demo
	$(BIN)/stretto plan allgather -t ndv2:4 --shard 31.25MB -p mtegcca -o demo/ndv2-4.parquet
	$(BIN)/stretto plan allgather -t zoo:Abilene --shard 1MB -p mtegcca --chunks 4 -o demo/abilene.parquet
	$(BIN)/stretto compare allgather -t dgx2:2 --size 1MB,1GB -p mtegcca
	$(BIN)/stretto report demo/ndv2-4.parquet demo/abilene.parquet -o demo/index.html
	@echo "open the page: file://$(CURDIR)/demo/index.html"

picture: $(STAMP) ## draw docs/picture.svg, the picture in the README
	$(BIN)/stretto compare allreduce -t examples/three_sites.json --size 1GB -p ring,forest -o docs/picture.svg

test: $(RAY_STAMP) ## run the tests
	$(BIN)/python -m pytest -n auto --dist loadgroup -q

check: $(STAMP) ## lint, format and types
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

format: $(STAMP) ## mend lint and format
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

bench: $(STAMP) ## run the benchmarks, one after the other; tables on stdout, JSON in benchmarks/out
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(DOCS_STAMP) ## build the documentation into site/
	$(BIN)/mkdocs build --strict

clean: ## remove what the other targets made
	rm -rf $(VENV) demo site benchmarks/out build .pytest_cache .hypothesis .mypy_cache .ruff_cache
