# Every target prepares its own environment in .venv; nothing is installed elsewhere.

PYTHON ?= python3
TORCH ?= torch==2.13.0

VENV := .venv
BIN := $(VENV)/bin
PACKAGES_STAMP := $(VENV)/.installed-packages
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
COMPILED := $(VENV)/.compiled
PARALLEL := -n auto --dist worksteal
OVERWRITTEN := MALLOC_PERTURB_=165 PYTHONMALLOC=malloc
CHECKED := LD_PRELOAD=libc_malloc_debug.so.0 MALLOC_CHECK_=3 PYTHONMALLOC=malloc
PACKAGES := lpsmap_core lpsmap_decode lpsmap_dynamic lpsmap_face lpsmap_factors_logic lpsmap_factors_struct lpsmap_jax lpsmap_jit lpsmap_search lpsmap_torch

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

TARGETS := $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' Makefile)

.PHONY: $(TARGETS)

help:  ## Show this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 26

demo: $(PACKAGES_STAMP)  ## Train latent trees on generated ListOps data, about 3 minutes
	$(BIN)/python examples/listops.py demo --out build/listops

papers: $(STAMP)  ## Run the papers' experiments, and all estimators, at small sizes, at most 30 minutes
	$(BIN)/python -m experiments run --size small --out build/papers
	$(BIN)/python -m experiments report --out build/papers

papers-full: $(STAMP)  ## Run the papers' experiments, and all estimators, at full size, for hours; go on after a kill
	$(BIN)/python -m experiments run --size full --out build/papers-full
	$(BIN)/python -m experiments report --out build/papers-full

test: $(STAMP) | $(COMPILED)  ## Run the quick tests
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

test-slow: $(STAMP)  ## Run the slow tests: wheels in empty environments, many draws
	$(BIN)/python -m pytest -m slow $(PARALLEL)

test-bounds: $(STAMP)  ## Run the quick tests with every index in compiled kernels checked, about 25 minutes
	NUMBA_BOUNDSCHECK=1 $(BIN)/lpsmap compile --all
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest -m "not slow" $(PARALLEL)

# Settings of the GNU C library, which Python uses for objects of its own, too.
test-malloc: $(STAMP) | $(COMPILED)  ## Run the quick tests with freed memory overwritten, and with blocks checked when freed
	$(OVERWRITTEN) $(BIN)/python -m pytest -m "not slow" $(PARALLEL)
	$(CHECKED) $(BIN)/python -m pytest -m "not slow" $(PARALLEL)

stress: $(STAMP)  ## Solve random graphs of all installed factors against judges, for 30 minutes
	$(BIN)/python tests/stress.py --minutes 30

stress-decoding: $(STAMP)  ## Decode random graphs, and hold what comes of it to enumeration, for 30 minutes
	$(BIN)/python tests/stress_decoding.py --minutes 30

stress-answers: $(STAMP)  ## Draw 3,000 graphs of mixed types, and count the assignments that the search misses
	$(BIN)/python tests/stress_answers.py --output build/answers.jsonl

interrupts: $(STAMP)  ## Send Ctrl-C to 50 hard solves of every structured type, about 15 minutes
	$(BIN)/python tests/interrupts.py --solves 50

sweep: $(STAMP) | $(COMPILED)  ## Ask every verb of every factor type at all sizes, and send Ctrl-C, about 40 minutes
	$(BIN)/python tests/sweep.py

# torch says itself which numpy it needs; everything else is as old as the packages allow.
test-oldest:  ## Run the quick tests of core and packs with the oldest supported numpy and numba
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet $(TORCH) --constraint tests/oldest.txt \
		--editable './lpsmap_core[new-plugin]' \
		$(patsubst %,--editable ./%,$(filter-out lpsmap_core,$(PACKAGES))) \
		--requirement requirements-dev.txt
	$(VENV)-oldest/bin/python -m pytest -m "not slow" $(PARALLEL) tests/core tests/decode tests/dynamic tests/jit tests/logic tests/struct

# A compiled kernel is invisible to the tracer, so its lines count through a run of the same source
# undecorated: of the tests of the packages that the figure is about.
coverage: $(STAMP) | $(COMPILED)  ## Run the quick tests with and without compilation, and ask for 95% of all lines
	COVERAGE_FILE=.coverage.compiled $(BIN)/python -m pytest -m "not slow" $(PARALLEL) --cov --cov-report=
	COVERAGE_FILE=.coverage.plain LPSMAP_DISABLE_JIT=1 \
		$(BIN)/python -m pytest -m "not slow and not compiled" $(PARALLEL) --cov --cov-report= \
		tests/core tests/decode tests/dynamic tests/jit tests/logic tests/test_peers_defects.py
	$(BIN)/python -m coverage combine --keep .coverage.compiled .coverage.plain
	$(BIN)/python -m coverage report --show-missing --skip-covered --fail-under=95

lint: $(STAMP)  ## Check style, formatting, the direction of imports, and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(STAMP)  ## Format the code and sort its imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The examples of the gallery run; those that train a network take most of the time.
docs: $(DOCS_STAMP)  ## Build the documentation in build/docs, about 12 minutes; a warning or a broken link is an error
	rm -rf build/docs  # pages of modules that are gone
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --keep-going docs build/docs

docs-fast: $(DOCS_STAMP)  ## Build the documentation in build/docs-fast without running the gallery, about 2 minutes
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --define plot_gallery=0 docs build/docs-fast

# Kernels are compiled from the installed sources, which the wheels contain unchanged.
wheels: $(STAMP)  ## Build all wheels in build/wheels, and one of compiled kernels for this platform, about 15 minutes
	rm -rf build/wheels
	for folder in $(PACKAGES); do $(BIN)/python -m build --no-isolation --wheel --outdir build/wheels $$folder || exit 1; done
	$(BIN)/python kernels/compile_kernels.py
	$(BIN)/python -m build --no-isolation --wheel --outdir build/wheels kernels

bench: $(STAMP)  ## Time every workload against the table of the earlier library
	$(BIN)/python benchmarks/bench.py

# The change and removal of files aside, all that `make help` shows and that takes less than a night.
everything: $(filter-out help format clean docs-fast everything papers-full,$(TARGETS))  ## Run all the others, for some hours: weekly

clean:  ## Remove the environment and everything that was generated
	rm -rf $(VENV) $(VENV)-oldest build docs/gallery docs/results .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# torch comes first and pinned, so that nothing that depends on it chooses another build. Bytecode
# is made where it is used: torch alone has thousands of modules.
$(PACKAGES_STAMP): $(PACKAGES:%=%/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile $(TORCH)
	$(BIN)/python -m pip install --quiet --no-compile --editable './lpsmap_decode[progress]' --editable './lpsmap_face[plot]' \
		$(patsubst %,--editable ./%,$(filter-out lpsmap_decode lpsmap_face,$(PACKAGES)))
	touch $@

$(STAMP): requirements-dev.txt $(PACKAGES_STAMP)
	$(BIN)/python -m pip install --quiet --editable './lpsmap_core[new-plugin]' \
		--requirement requirements-dev.txt
	touch $@

# Once for a machine: here kernels compile beside each other, within the tests they wait for each
# other. Later changes of the source compile where they are used.
$(COMPILED): | $(STAMP)
	$(BIN)/lpsmap compile --all
	touch $@

$(DOCS_STAMP): docs/requirements.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --requirement docs/requirements.txt
	touch $@
