# Everything from a bare checkout. Stamp files in each virtual environment say what is installed there; they are
# older than pyproject.toml or the constraints when something must be installed again.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV ?= .venv
NEWEST_VENV ?= .venv312
PYTEST_ARGS ?=

PYTHON_VERSION := $(shell $(PYTHON) -c 'import sys; print("%d%d" % sys.version_info[:2])' 2>/dev/null)
# A Python without a constraints file of its own gets the newest releases that pyproject.toml allows.
CONSTRAINTS := $(wildcard constraints/py$(PYTHON_VERSION).txt)
NEWEST_CONSTRAINTS := constraints/py312.txt
INSTALL := -m pip install --disable-pip-version-check -qq
CHROMIUM_PATH := $(or $(CHROMIUM),$(shell command -v chromium || command -v chromium-browser || command -v google-chrome))
SUITE := -m pytest -m 'not browser and not gpu' $(PYTEST_ARGS)

define CHECKS
ruff check
ruff format --check
basedpyright
lint-imports --no-cache --no-logo
python -m pytest -q tests/architecture
endef
export CHECKS

.PHONY: help demo dashboard screenshots test test-newest test-gpu browser-test golden check format bench bench-gpu bench-events lock clean

help: ## List these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.installed-core ## Simulate a matmul, print the report, write the Perfetto trace (build/demo)
	rm -rf build/demo
	MGPU_TARGET=sim $(VENV)/bin/python examples/04_warp_specialized_matmul.py --profile-dir build/demo

dashboard: $(VENV)/.installed-dashboard build/demo ## Open the demo's captures in the web dashboard
	$(VENV)/bin/mgpu dashboard build/demo

screenshots: $(VENV)/.installed-test ## Renew the dashboard's pictures in docs/images (needs Chromium)
	rm -rf build/screenshots
	for stages in 4 2; do $(VENV)/bin/python examples/04_warp_specialized_matmul.py --size 1024 --stages $$stages --profile-dir build/screenshots >/dev/null; done
	CHROMIUM='$(CHROMIUM_PATH)' $(VENV)/bin/python docs/screenshots.py build/screenshots

build/demo: | $(VENV)/.installed-core
	$(MAKE) demo

test: $(VENV)/.installed-test ## Run all tests that need neither a browser nor a GPU
	$(VENV)/bin/python $(SUITE)

test-newest: $(NEWEST_VENV)/.installed-test ## The same with Python 3.12 and the newest JAX
	$(NEWEST_VENV)/bin/python $(SUITE)

test-gpu: $(VENV)/.installed-gpu ## Run the tests that need an NVIDIA GPU
	JAX_PLATFORMS=cuda,cpu PYTHONPATH=tests timeout --kill-after=5 475 $(VENV)/bin/python -m support.gpu_suite \
		build/test-gpu.json -m gpu $(PYTEST_ARGS)

browser-test: $(VENV)/.installed-test ## Drive the dashboard in a real Chromium (CHROMIUM=path to choose one)
	@test -n '$(CHROMIUM_PATH)' || { echo 'No Chromium found: install one (Debian: apt-get install chromium) or set CHROMIUM=/path/to/it.' >&2; exit 1; }
	CHROMIUM='$(CHROMIUM_PATH)' $(VENV)/bin/python -m pytest -m browser $(PYTEST_ARGS)

golden: $(VENV)/.installed-test ## Run all examples, renew what they are expected to print, show what changed
	PYTHONPATH=.:tests MGPU_TARGET=sim JAX_PLATFORMS=cpu $(VENV)/bin/python -m support.examples
	git --no-pager diff -- 'examples/*.out'

check: $(VENV)/.installed-check ## Lint, formatting, types, import rules, sizes; shows all failures, not the first only
	@status=0; while read -r check; do \
		echo "== $$check"; PYTHONPATH=. $(VENV)/bin/$$check || status=1; \
	done <<< "$$CHECKS"; exit $$status

format: $(VENV)/.installed-check ## Format the code and apply the linter's safe fixes
	$(VENV)/bin/ruff format
	$(VENV)/bin/ruff check --fix

bench: $(VENV)/.installed-test ## Measure speed and accuracy; rewrites the figures in docs/
	JAX_PLATFORMS=cpu $(VENV)/bin/python -m benchmarks.accuracy
	JAX_PLATFORMS=cpu $(VENV)/bin/python -m benchmarks.replay
	JAX_PLATFORMS=cpu $(VENV)/bin/python -m benchmarks.decode --events 10000000 --write
	JAX_PLATFORMS=cpu $(VENV)/bin/python -m benchmarks.speed \
		$(if $(wildcard $(NEWEST_VENV)/bin/python),--jax-python $(NEWEST_VENV)/bin/python)

bench-gpu: $(VENV)/.installed-gpu ## Calibrate the device table on the GPU that is here, and measure what recording costs
	JAX_PLATFORMS=cuda,cpu timeout --kill-after=5 475 $(VENV)/bin/python -m benchmarks.gpu

bench-events: $(NEWEST_VENV)/.installed-test ## Renew docs/recording.md; MGPU_CUDA_PACKAGES names the compiler's packages
	PYTHONPATH=.:tests JAX_PLATFORMS=cpu $(NEWEST_VENV)/bin/python -m support.event_cost

lock: ## Write constraints/*.txt anew from clean environments
	@$(FIND_PYTHON312); set -- py311 $(PYTHON) py312 "$$found"; \
	while [ $$# -gt 0 ]; do \
		rm -rf build/lock; $$2 -m venv build/lock; \
		build/lock/bin/python $(INSTALL) -e '.[dashboard,sql,ui,test,check]'; \
		{ echo "# Every version that is tested with Python $${1:2:1}.$${1:3}. Written by \`make lock\`; do not edit."; \
		  build/lock/bin/python -m pip freeze --disable-pip-version-check --exclude-editable; } > build/lock.txt; \
		mv build/lock.txt constraints/$$1.txt; rm -rf build/lock; shift 2; \
	done

clean: ## Remove everything that make created, environments included
	rm -rf build dist .venv .venv312 .pytest_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-core: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(VENV)/bin/python $(INSTALL) $(CONSTRAINTS:%=-c %) -e .
	@touch $@

$(VENV)/.installed-dashboard: $(VENV)/.installed-core
	$(VENV)/bin/python $(INSTALL) $(CONSTRAINTS:%=-c %) -e '.[dashboard,ui]'
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(VENV)/bin/python $(INSTALL) $(CONSTRAINTS:%=-c %) -e '.[dashboard,sql,ui,test]'
	@touch $@ $(VENV)/.installed-core $(VENV)/.installed-dashboard

$(VENV)/.installed-gpu: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(VENV)/bin/python $(INSTALL) $(CONSTRAINTS:%=-c %) -e '.[test,gpu]'
	@touch $@ $(VENV)/.installed-core

$(VENV)/.installed-check: $(VENV)/.installed-test
	$(VENV)/bin/python $(INSTALL) $(CONSTRAINTS:%=-c %) -e '.[check]'
	@touch $@

# pyenv puts a `python3.12` on PATH that only works when PYENV_VERSION names an installed 3.12: try those as well.
FIND_PYTHON312 = found=; \
	for version in '' $$(pyenv versions --bare 2>/dev/null | grep '^3\.12\.' || true); do \
		found=$$(PYENV_VERSION=$$version python3.12 -c 'import sys; print(sys.executable)' 2>/dev/null) && break || true; \
	done; \
	test -n "$$found" || { echo 'No working python3.12 on PATH: the newest JAX needs Python 3.12. Install it, or run make test.' >&2; exit 1; }

$(NEWEST_VENV)/bin/python:
	@$(FIND_PYTHON312); echo "$$found -m venv $(NEWEST_VENV)"; "$$found" -m venv $(NEWEST_VENV)

$(NEWEST_VENV)/.installed-test: pyproject.toml $(NEWEST_CONSTRAINTS) | $(NEWEST_VENV)/bin/python
	$(NEWEST_VENV)/bin/python $(INSTALL) -c $(NEWEST_CONSTRAINTS) -e '.[dashboard,sql,ui,test]'
	@touch $@
