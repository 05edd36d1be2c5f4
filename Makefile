# All tasks of this project. A target sets up what it needs, in .venv and .venvs only.

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The first Python that is new enough. To use another: `make PYTHON=/path/to/python ...`.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 10))
PYTHON ?= $(shell for python in python3 python python3.13 python3.12 python3.11 python3.10; do \
	if $$python -c '$(NEW_ENOUGH)' 2>/dev/null; then echo $$python; exit; fi; done)

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile
READY := .venv/.ready
DEV_READY := .venv/.ready-dev
INTEROP_READY := .venvs/interop/.ready
INTEROP_LOG := .venvs/interop.log
SETUP := $(PYTHON) tools/setup_env.py
# Files from which an installation of this project is built. Python sources are used in place.
BUILT_FROM := pyproject.toml setup.py mx_artifacts/bulk/bulk.c tools/setup_env.py

# Real caches that `make test-kinds` moves: names from tests/kinds/caches.py, separated by commas.
CACHES ?= all

.PHONY: help demo test unit contract integration faults interop test-kinds test-vllm check proto docs \
	bench bench-peers clean python interop-if-possible

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## Compile on one node, run without compiling on another (two minutes)
	$(BIN)/mx-artifact demo

test: $(DEV_READY) interop-if-possible  ## Run all tests, interoperation included (ten minutes)
	$(PYTEST)

unit: $(DEV_READY)  ## Run the tests that start no process (half a minute)
	$(PYTEST) -m "not process" tests/unit tests/architecture

contract: $(DEV_READY)  ## Run the tests that every metadata backend and transport must pass
	$(PYTEST) tests/contract

integration: $(DEV_READY)  ## Run the tests with real processes and servers
	$(PYTEST) tests/integration

faults: $(DEV_READY)  ## Run the tests that kill processes, flood ports and send wrong data
	$(PYTEST) tests/faults

test-kinds: $(DEV_READY)  ## Move all real caches, every case (docs/kinds.md); CACHES=triton: only that one
	@mkdir -p .venvs
	@needed=$$($(BIN)/python -m tests.kinds.environments $(CACHES)) && for name in $$needed; do \
		$(MAKE) --no-print-directory .venvs/kinds-$$name/.ready 2>.venvs/kinds-$$name.log || \
			cat .venvs/kinds-$$name.log >&2; done
	$(BIN)/python -m pytest tests/kinds --kinds $(CACHES)
	@$(BIN)/python tools/kinds_page.py

test-vllm:  ## Move vLLM's compile caches, every case, and load them with vLLM's own loader
	@$(MAKE) --no-print-directory test-kinds CACHES=vllm

interop: $(DEV_READY) $(INTEROP_READY)  ## Run only the tests against the reference package
	$(BIN)/python -m pytest -m interop

bench: $(READY)  ## Measure seal, fetch and install; compare with cp, tar and the baseline
	$(BIN)/python -m benchmarks.transfer --baseline benchmarks/baselines/transfer.json
	$(BIN)/python -m benchmarks.simulate

bench-peers: $(READY) $(INTEROP_READY)  ## Measure the same, and compare with the reference package, too
	$(BIN)/python -m benchmarks.transfer --peers .venvs/interop/bin/python

check: $(DEV_READY)  ## Check lint, format, types, import contracts and generated files
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/generate_protos.py --check
	$(BIN)/python tools/generate_docs.py --check
	$(BIN)/python tools/generate_api.py --check

proto: $(DEV_READY)  ## Generate mx_artifacts/wire/gen from proto/
	$(BIN)/python tools/generate_protos.py

docs: $(DEV_READY)  ## Generate the pages of docs/operations/ and docs/api/
	$(BIN)/python tools/generate_docs.py
	$(BIN)/python tools/generate_api.py

clean:  ## Remove environments and all generated files that git does not track
	rm -rf .venv .venvs build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf .coverage *.egg-info cli/*.egg-info mx_artifacts/bulk/*.so.1
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up: a stamp file exists only if the set-up succeeded -------------------------------------

python:
	@test -n "$(PYTHON)" || { echo "set-up failed: no Python 3.10 or newer was found." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }

$(READY): $(BUILT_FROM) | python
	@echo "setting up .venv (a minute, once)"
	@$(SETUP) project .venv demo zstd
	@touch $@

$(DEV_READY): $(READY)
	@echo "adding what tests and checks need to .venv"
	@$(SETUP) project .venv demo zstd redis dev
	@touch $@

$(INTEROP_READY): tools/setup_env.py | python
	@echo "setting up .venvs/interop, the reference package's environment (a minute, once)"
	@mkdir -p .venvs
	@$(SETUP) interop .venvs/interop
	@touch $@

.venvs/kinds-%/.ready: $(BUILT_FROM) | python
	@echo "setting up .venvs/kinds-$*, compilers of real caches (several GB, once)"
	@$(SETUP) kinds $* $(@D)
	@touch $@

# Without the reference package, `make test` runs all other tests and prints why it skipped these.
interop-if-possible:
	@mkdir -p .venvs
	@$(MAKE) --no-print-directory $(INTEROP_READY) 2>$(INTEROP_LOG) || \
		{ cat $(INTEROP_LOG) >&2; echo "interoperation tests will be skipped" >&2; }
