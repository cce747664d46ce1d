# make repro: everything from nothing. make test: all checks. Each sets itself up first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
TORCH := $(shell sed -n '/^torch==/p' requirements.lock)
KEY := $(shell cat requirements.lock pyproject.toml | sha256sum | cut -c1-16)
READY := $(VENV)/ready-$(KEY)

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export MLFLOW_DISABLE_TELEMETRY := true
export DVC_NO_ANALYTICS := 1
export ITERATIVE_DO_NOT_TRACK := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: help
help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

.PHONY: repro
repro: $(READY) ## run the pipeline and print the result table
	dvc repro
	python stages/report.py --table

.PHONY: test
test: lint ## check the form, the types and every test
	pytest

.PHONY: lint
lint: $(READY) ## check the form and the types
	ruff check .
	ruff format --check .
	mypy

.PHONY: ui
ui: $(READY) ## compare the runs in a browser, on this machine only
	MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false mlflow ui --workers 1 --host 127.0.0.1 \
		--port $(or $(PORT),5000) --backend-store-uri sqlite:///$(CURDIR)/mlflow.db

.PHONY: clean
clean: ## remove the environment and the tools' caches; data, models and runs stay
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dvc_plots *.egg-info
	find interlat stages tests -name __pycache__ -prune -exec rm -rf {} +

# torch goes first: the lock file then takes whichever build of that version is there.
$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	pip install --quiet $(TORCH)
	pip install --quiet --requirement requirements.lock
	pip install --quiet --no-deps --editable .
	rm -f $(VENV)/ready-*
	touch $@
