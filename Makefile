# Everything a newcomer needs. Each target works from a bare clone and makes its own environment.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
STORE  ?= sqlite
SEEDS  ?= 1000
AT_ONCE ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo demo-once test screenshots simulate lint format bench docs clean python java

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: java $(READY)  ## a web shop on the bus, with Dagster's UI; Ctrl-C ends it (STORE=mongo: on MongoDB)
	@$(BIN)/python -m definitions.demo --store $(STORE)

demo-once: java $(READY)  ## the same with a bounded set of events, and their account at the end
	@$(BIN)/python -m definitions.demo --once --store $(STORE)

test: java $(READY)  ## run all tests, in two processes (AT_ONCE=4: in more; AT_ONCE=0: here, as for --pdb)
	@$(BIN)/python -m pytest -n $(AT_ONCE) $(ARGS)

screenshots: java $(READY)  ## take the pictures in docs/images anew, by the tests in the browser
	@CI=1 DAGSTER_BUS_SCREENSHOTS=1 $(BIN)/python -m pytest tests/browser $(ARGS)

simulate: $(READY)  ## live through 1000 random histories of the bus (SEEDS=5000: more; SEED=123: one again)
	@$(BIN)/python -m tests.simulation --store $(STORE) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

lint: $(READY)  ## check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY)  ## put the code into the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: java $(READY)  ## measure log, delivery, Spark and Dagster beside raw stores and a peer (ARGS="--quick": a taste)
	@$(BIN)/python -m benchmarks.log $(ARGS)
	@$(BIN)/python -m benchmarks.delivery $(ARGS)
	@$(BIN)/python -m benchmarks.spark_source $(ARGS)
	@$(BIN)/python -m benchmarks.spark_sessions $(ARGS)
	@$(BIN)/python -m benchmarks.dagster $(ARGS)
	@$(BIN)/python -m benchmarks.loading $(ARGS)

docs: $(READY)  ## write the reference of topics.yaml anew
	@$(BIN)/python -m tools.reference

clean:  ## remove the environment and all that was made
	rm -rf $(VENV) .demo .bus data spark-warehouse .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A Python that was good enough for the environment is not asked for again.
ANY_PYTHON = $(if $(wildcard $(READY)),$(BIN)/python,$(PYTHON))

python:
	@command -v $(ANY_PYTHON) >/dev/null || { \
	  echo "Python 3.11 or newer is needed: install it, or name one with make PYTHON=…" >&2; exit 1; }
	@$(ANY_PYTHON) tools/check_machine.py

java: python
	@$(ANY_PYTHON) tools/check_machine.py --java

$(READY): pyproject.toml constraints.txt | python
	@echo "Installing into $(VENV) (a few minutes the first time) …"
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "venv failed: install it (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[all,dev]'
	@touch $@
