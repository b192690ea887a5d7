# make demo   everything from a clean clone: set-up, serve the bundled model, look, verify, report
# make test   everything from a clean clone: set-up, lint, types, tests
# The development set-up needs CPython 3.11 on x86-64 with venv, make and a C++ compiler.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
PYTHON ?= $(or $(shell command -v python3.11 2>/dev/null),$(shell python3 -c 'import sys; print(sys.executable if sys.version_info[:2] == (3, 11) else "")' 2>/dev/null))
RUN := $(VENV)/bin/python
OUT ?= out

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## the development environment in .venv
	@test -n "$(PYTHON)" || { echo "make: CPython 3.11 is missing; install python3.11 with its venv module, or name one: make PYTHON=/path/to/python3.11"; exit 2; }
	@bash scripts/dev/install.sh "$(PYTHON)" "$(VENV)"

demo: setup ## serve the bundled model on this CPU, look at a picture, verify, report
	$(VENV)/bin/ascend-vl demo --out $(OUT)/demo-$$(date +%Y%m%d-%H%M%S)

test: lint ## set-up, lint, types and all tests but those on the emulated NPU
	$(RUN) -m pytest -m "not emulated"

test-faults: stacks ## each modelled fault and its cure, on the emulated NPU: what CI runs beside `make test`
	$(RUN) -m pytest -m emulated tests/adaptations

test-emulated: stacks ## all tests on the emulated NPU (unmodified vllm-ascend 0.18.0 and 0.23.0.post1)
	$(RUN) -m pytest -m emulated

lint: setup ## ruff and mypy
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

train: setup ## train the demo checkpoint again, into out/ (CPU, about two hours of one core; resumes)
	$(RUN) -m training.train --out $(OUT)/train
	$(RUN) -m training.export --run $(OUT)/train/run.pt --out $(OUT)/train/checkpoint

eval-demo: setup ## ask the served demo model about 500 held-out scenes, grade 500 drawings, write its card
	$(RUN) -m training.evaluate --serve

matrix: setup ## faults and cures on emulated chips: docs/*/matrix.md (a quarter of an hour on two cores)
	@$(MAKE) stacks STACKS="0.11.0 0.18.0 0.23.0.post1"
	$(RUN) -m benchmarks.matrix

STACKS ?= 0.18.0 0.23.0.post1
stacks: setup ## the unmodified vllm-ascend releases beside torch, for the emulated NPU (.venv-ascend-*)
	@for version in $(STACKS); do $(RUN) -m npu_emulator.stacks make $$version --project . || exit 1; done

stacks-all: ## the same with 0.11.0 and the release candidate 0.26.0rc1
	@$(MAKE) stacks STACKS="0.11.0 0.18.0 0.23.0.post1 0.26.0rc1"

.PHONY: help setup demo test test-faults test-emulated lint train eval-demo matrix stacks stacks-all
