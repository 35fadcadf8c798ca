# Two commands do all the set-up: `make demo` and `make test`. Needs Python 3.11 or later; nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
READY := $(VENV)/.ready

PLAIN_INTEROP := $(addprefix tests/interop/test_,java_producers.py java_consumers.py go_clients.py)

SOAK_INTEROP := $(addprefix tests/interop/test_,replication.py dledger.py dledger_broker.py controller.py autoswitch.py epochs.py replacement.py)

.PHONY: help setup demo test test-plain check sim soak interop interop-plain bench bench-spark profile fuzz wheel clean

help: ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 15

$(READY): pyproject.toml setup.py $(wildcard src/perseid/core/*.py src/perseid/core/*.pxd)
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Perseid needs Python 3.11 or later; set PYTHON="'
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --retries 5 --timeout 60 --editable '.[spark,lake,demo,dev]'
	@touch $@

setup: $(READY) ## Make .venv with everything; the command is then .venv/bin/perseid

demo: $(READY) ## 336,776 flights, a master that is killed half-way for good, and a Spark table
	$(RUN) -m demo --out demo-out

test: $(READY) ## All tests that need neither JDK, Maven nor Go
	$(RUN) -m pytest -n 2 --dist loadgroup -m 'not interop' $(ARGS)

test-plain: $(READY) ## The same without the compiled core, and without Spark and the tidy test
	PERSEID_CORE=off $(RUN) -m pytest -n 2 --dist loadgroup -m 'not interop and not spark and not once' --ignore tests/tidy $(ARGS)

check: $(READY) ## Lint, types, layers, tidiness
	$(BIN)/ruff check setup.py src tests bench demo examples
	$(BIN)/mypy
	$(BIN)/lint-imports --config .importlinter --no-cache
	$(RUN) -m pytest tests/tidy -p no:randomly

sim: $(READY) ## Many seeds of the simulator, of brokers, of Raft groups, of both, and of controllers with brokers (SEEDS=20000)
	$(BIN)/perseid sim --seeds $(or $(SEEDS),20000) --jobs 2
	$(BIN)/perseid sim --seeds $(or $(SEEDS),2000) --jobs 2 --model acting
	$(BIN)/perseid sim --seeds $(or $(SEEDS),20000) --jobs 2 --model raft
	$(BIN)/perseid sim --seeds $(or $(SEEDS),1000) --jobs 2 --model group
	$(BIN)/perseid sim --seeds $(or $(SEEDS),20000) --jobs 2 --model ha

soak: sim ## What an issue asks for by hand, before it is resolved
	@tests/interop/install.sh
	PERSEID_SOAK=1 $(RUN) -m pytest -m interop -rP $(SOAK_INTEROP) $(ARGS)
	$(RUN) -m tests.spark.kills.soak --kills 50

interop: $(READY) ## Against the real Java and Go parts (installs what they need)
	@tests/interop/install.sh
	@# Files in their order: by their numbers of tests, those of few and long ones would come last, on one worker. They wait more than they work: three workers for two cores.
	$(RUN) -m pytest -n 3 --dist loadfile --no-loadscope-reorder -rs -m interop tests/interop $(ARGS)

interop-plain: $(READY) ## The stock producers and consumers on our cluster, without the compiled core
	@tests/interop/install.sh
	PERSEID_CORE=off PERSEID_ORACLE=0 $(RUN) -m pytest -n 2 --dist loadfile -m interop $(PLAIN_INTEROP) $(ARGS)

bench: $(READY) ## Side by side with the Java broker (ROWS=... for some; ARGS=--help)
	@tests/interop/install.sh
	$(RUN) bench/run.py $(if $(ROWS),--rows $(ROWS)) $(ARGS)

bench-spark: $(READY) ## Sources, sink and archive, beside Parquet, JSON lines and a Java consumer (ARGS=--help)
	@tests/interop/install.sh
	$(RUN) bench/spark.py $(ARGS)

profile: $(READY) ## Flame graphs of a broker under load, and where the microseconds go (ROWS=closed)
	$(RUN) bench/profile_broker.py $(if $(ROWS),--rows $(ROWS)) $(ARGS)

fuzz: $(READY) ## Each decoder for a minute (SECONDS=60)
	$(RUN) tests/fuzz/run.py all --seconds $(or $(SECONDS),60)

wheel: $(READY) ## An sdist and a wheel in dist/
	$(RUN) -m build

clean: ## Remove what the targets made
	rm -rf $(VENV) build dist demo-out *.egg-info src/*.egg-info
