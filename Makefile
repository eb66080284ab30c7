# Everything runs in .venv, which `make setup` makes with the Python of $(PYTHON).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
RAY_STAMP := $(VENV)/.installed-ray
# --no-compile: Python compiles each file that is imported; of all the others in these packages pip would for 40 s
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
KERNEL_STAMP := $(VENV)/.compiled
KERNELS := $(shell find src/stretto -name 'kernel_*.py' -o -path '*/kernels/*.py')
# what finds most faults in a minute: digests, damaged plans, real bytes, and few examples of the contract
QUICK := golden mutants oracle contract/test_cli.py contract/test_cli_refusals.py test_architecture.py \
  test_collective.py test_registry.py test_simulate.py test_verify.py $(addprefix contract/test_planners.py::, \
  test_every_plan_verifies_and_never_beats_the_bound test_both_speeds_of_the_kernels_give_the_same_plan \
  test_the_simulator_reproduces_every_start_and_the_plan_is_right_in_ready_order_too)

# else each process of the tests would compile all of PyTorch and Numba from their sources, in seconds
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup packages demo picture test quick check format bench tables docs wheels release clean
help: ## what each target does
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(KERNEL_STAMP) ## make .venv with the stretto command in it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "stretto needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || \
	  { echo "the venv module is missing: apt-get install python3-venv"; exit 1; }
	@echo "installing stretto into $(VENV) ..."
	@$(INSTALL) -e '.[dev,torch$(ALSO)]'
	@touch $@ $(if $(ALSO),$(DOCS_STAMP) $(RAY_STAMP))

$(DOCS_STAMP): $(STAMP)
	@$(INSTALL) -e '.[docs]'
	@touch $@

$(RAY_STAMP): $(STAMP)
	@$(INSTALL) -e '.[ray]'
	@touch $@

packages: ## install what check, test and docs need: in a new environment at once, else one set after another, as pip wants it
	@$(MAKE) --no-print-directory $(STAMP) ALSO=,docs,ray
	@$(MAKE) --no-print-directory $(DOCS_STAMP)
	@$(MAKE) --no-print-directory $(RAY_STAMP)

$(KERNEL_STAMP): $(STAMP) $(KERNELS)
	@echo "compiling kernels, about a minute ..."
	@$(BIN)/stretto warm
	@touch $@

REGIONS := aws:us-east-1,aws:us-west-2,gcp:us-central1,azure:westeurope,aws:ap-northeast-1,gcp:southamerica-east1
demo: $(STAMP) ## plan a GPU cluster and six cloud regions, and draw the page demo/index.html
	@mkdir -p demo
	$(BIN)/stretto compare allreduce -t h100:4 --size 64MB,1GB -p nccl,auto
	$(BIN)/stretto compare allreduce -t cloud:$(REGIONS) --size 1GB -p ring,auto -o demo/index.html
	@echo "open the page: file://$(CURDIR)/demo/index.html#beside=0"

picture: $(STAMP) ## draw the pictures of the README and of the docs
	$(BIN)/stretto compare allreduce -t examples/three_sites.json --size 1GB -p ring,forest -o docs/pictures/picture.svg
	$(BIN)/stretto topologies 'h100:64?pod=16&spines=4' --plot docs/pictures/cluster.svg
	$(BIN)/stretto topologies zoo:Geant2012 --plot docs/pictures/map.svg
	cd docs/pictures/planners && grep -h '^    stretto' ../../understand/planners/*.md | PATH="$(CURDIR)/$(BIN):$$PATH" sh -e && rm -f *.parquet

# the first process that crashes ends the run: xdist 3.8 would wait for ever for tests that it had completed
PYTEST := $(BIN)/python -m pytest -n auto --dist loadgroup --max-worker-restart=0 -q
test: $(RAY_STAMP) $(KERNEL_STAMP) ## run the tests
	$(PYTEST) --durations=12

quick: $(KERNEL_STAMP) ## run the tests that find most faults in a minute
	STRETTO_EXAMPLES=3 $(PYTEST) $(addprefix tests/, $(QUICK))

check: $(STAMP) ## lint, format and types
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

format: $(STAMP) ## mend lint and format
	$(BIN)/ruff check --fix src tests benchmarks examples
	$(BIN)/ruff format src tests benchmarks examples

bench: $(STAMP) ## run the benchmarks, one after the other; tables on stdout, JSON in benchmarks/out
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

tables: $(STAMP) ## run what the tables of the docs come from and write them in place, hours; ONLY="allgather sums" for some
	$(BIN)/python benchmarks/tables.py $(or $(ONLY),--all)

docs: $(DOCS_STAMP) ## build the documentation into site/
	$(BIN)/mkdocs build --strict

wheels: ## build wheel and sdist, install each into an empty environment and try it there
	@.ci/wheels $(PYTHON)

release: ## the same on each of Python 3.11 to 3.13 that is on the path; dist/ is what a release uploads
	@.ci/wheels

clean: ## remove what the other targets made
	rm -rf $(VENV) demo site benchmarks/out build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
