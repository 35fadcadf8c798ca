# Two commands do all the set-up: `make demo` and `make test`. Needs Python 3.11 or later; nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
READY := $(VENV)/.ready
# Bars where somebody looks at a terminal, else a line for each package.
PLAIN_PIP := $(shell test -t 2 || echo --progress-bar off)
# Each test by itself, but for the groups that share something dear; longest first (tests/conftest.py), not largest group first.
ONE_BY_ONE := --dist loadgroup --no-loadscope-reorder
SPREAD := -n 3 $(ONE_BY_ONE)
TIMED = PERSEID_TIMES=$(CURDIR)/.cache/times/$@

CORELESS := $(addprefix --ignore tests/,base bench cli client disk nameserver packaging spark/landing tidy verify wire)

# `make check` has these.
UNTIDY := --ignore tests/tidy

PLAIN_INTEROP := $(addprefix tests/interop/test_,java_producers.py java_consumers.py go_clients.py)

SOAK_INTEROP := $(addprefix tests/interop/test_,replication.py dledger.py dledger_broker.py controller.py autoswitch.py epochs.py replacement.py)

.PHONY: help setup demo test test-slow test-long test-plain test-times check docs docs-serve sim sim-fresh sim-night soak interop interop-plain bench bench-spark profile fuzz mutants mutant-pairs landing wheel release-dry clean

help: ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 15

$(READY): pyproject.toml setup.py $(wildcard src/perseid/core/*.py src/perseid/core/*.pxd)
	@test -n "$(PYTHON)" || { echo "Perseid needs Python 3.11 or later, and there is none: install it, or say make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import platform, sys; sys.exit("Perseid needs Python 3.11 or later, and $(PYTHON) is %s: say make PYTHON=/path/to/python" % platform.python_version() if sys.version_info < (3, 11) else 0)'
	@echo "$(if $(wildcard $(READY)),Updating,Making) $(VENV): packages, and the compiled core$(if $(wildcard $(READY)),, (two minutes; pip tells how far it is))"
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install $(if $(wildcard $(READY)),--quiet,$(PLAIN_PIP)) --disable-pip-version-check --retries 5 --timeout 60 --editable '.[spark,lake,acl,demo,docs,dev]'
	@touch $@
	@echo "$(VENV) is ready: $(BIN)/perseid --help"

setup: $(READY) ## Make .venv with everything; the command is then .venv/bin/perseid

demo: $(READY) ## 336,776 flights, a master that is killed half-way for good, and a Spark table (ARGS=--secure: with TLS and users)
	$(RUN) -m demo --out demo-out $(ARGS)

test: $(READY) ## All tests that need neither JDK, Maven nor Go (CHANGED=1: those that this branch's changes can reach)
	$(TIMED) $(RUN) -m pytest $(SPREAD) -m 'not interop and not slow and not long' $(if $(CHANGED),$$($(RUN) tests/impact.py),$(UNTIDY)) $(ARGS)

test-slow: $(READY) ## The expensive ones: planted defects, Spark's JVMs and clusters, further formats and combinations (CHANGED=1, too)
	@# pytest ends with 5 where a change reaches none of them.
	$(TIMED) $(RUN) -m pytest $(SPREAD) -m 'slow and not interop and not long' $(if $(CHANGED),$$($(RUN) tests/impact.py)) $(ARGS) $(if $(CHANGED),|| test $$? = 5)

test-long: $(READY) ## What neither of them has: one more combination, or what lasts for minutes
	$(TIMED) $(RUN) -m pytest $(SPREAD) -m 'long and not interop' $(ARGS)
	@# The seeds that find planted defects keep all promises without them.
	PERSEID_PIN=1 $(RUN) -m pytest $(SPREAD) -m 'sim and once' -k 'planted or defect or outlive' --timeout 0 tests/sim

test-plain: $(READY) ## What the core does, without it: no Spark, none of the folders whose tests never reach it
	$(TIMED) PERSEID_CORE=off $(RUN) -m pytest $(SPREAD) -m 'not interop and not spark and not once and not long' $(CORELESS) $(ARGS)

test-times: $(READY) ## Where the seconds of the last runs of tests went: by folder, file, test, fixture, and process
	@$(RUN) tests/times.py

check: $(READY) ## Lint, types, layers, tidiness, the site
	$(BIN)/ruff check setup.py src tests bench demo examples release docs
	$(BIN)/mypy
	MYPYPATH=src $(BIN)/mypy --follow-imports=silent demo/*.py examples/*.py
	MYPYPATH=docs/tutorials/code:docs/how-to $(BIN)/mypy --strict --explicit-package-bases docs/tutorials/code docs/how-to/code
	MYPYPATH=docs $(BIN)/mypy --strict docs/hooks.py docs/docstrings.py
	$(BIN)/lint-imports --config .importlinter --no-cache
	$(RUN) -m pytest tests/tidy -p no:randomly
	$(MKDOCS) build

# Without its advertisement for a successor.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

docs: $(READY) ## The site, in .cache/site: a broken link, a page that nothing leads to, code that is missing is an error
	$(MKDOCS) build

docs-serve: $(READY) ## The site while you write it, on http://127.0.0.1:8000
	$(MKDOCS) serve --no-strict $(ARGS)

sim: $(READY) ## Many seeds of the simulator, of brokers, of Raft groups, of both, and of controllers with brokers (SEEDS=20000)
	$(BIN)/perseid sim --seeds $(or $(SEEDS),20000) --jobs 2
	$(BIN)/perseid sim --seeds $(or $(SEEDS),2000) --jobs 2 --model acting
	$(BIN)/perseid sim --seeds $(or $(SEEDS),20000) --jobs 2 --model raft
	$(BIN)/perseid sim --seeds $(or $(SEEDS),1000) --jobs 2 --model dledger
	$(BIN)/perseid sim --seeds $(or $(SEEDS),20000) --jobs 2 --model ha

sim-fresh: $(READY) ## Seeds that nobody has seen, all models, with the core and without, ten minutes (FOR=10m FRESH=the commit)
	$(BIN)/perseid sim --for $(or $(FOR),10m) --fresh "$(or $(FRESH),$$(git rev-parse HEAD))" $(ARGS)

sim-night: $(READY) ## The same for a night, with a report as it goes (FOR=8h REPORT=sim-night.txt)
	$(BIN)/perseid sim --for $(or $(FOR),8h) --report $(or $(REPORT),sim-night.txt) $(ARGS)

soak: sim test-long ## What an issue asks for by hand, before it is resolved (FOR=60m: real processes under faults)
	$(RUN) -m tests.soak.run --for $(or $(FOR),60m)
	@tests/interop/install.sh
	PERSEID_SOAK=1 $(RUN) -m pytest -m interop -rP $(SOAK_INTEROP) $(ARGS)
	$(RUN) -m tests.spark.kills.soak --kills 50
	$(RUN) -m tests.spark.landing.soak --count 50

interop: $(READY) ## Against the real Java and Go parts (installs what they need)
	@tests/interop/install.sh
	@# They wait more than they work: four workers for two cores (their idle Java brokers stand: tests/interop/shared.py).
	$(TIMED) $(RUN) -m pytest -n 4 $(ONE_BY_ONE) -rs -m interop tests/interop tests/soak $(ARGS)

interop-plain: $(READY) ## The stock producers and consumers on our cluster, without the compiled core
	@tests/interop/install.sh
	$(TIMED) PERSEID_CORE=off PERSEID_ORACLE=0 $(RUN) -m pytest -n 4 $(ONE_BY_ONE) -m interop $(PLAIN_INTEROP) $(ARGS)

PROGRAM_growth := bench/curves.py
PROGRAM_client := bench/clients.py

bench: $(READY) ## Side by side with the Java broker (ROWS=... for some, all, growth, client; ARGS=--help)
	@tests/interop/install.sh
	$(RUN) $(or $(PROGRAM_$(ROWS)),bench/run.py $(if $(ROWS),--rows $(ROWS))) $(ARGS)

bench-spark: $(READY) ## Sources, sink and archive, beside Parquet, JSON lines and a Java consumer (ARGS=--help)
	@tests/interop/install.sh
	$(RUN) bench/spark.py $(ARGS)

profile: $(READY) ## Flame graphs of a broker under load, and where the microseconds go (ROWS=closed)
	$(RUN) bench/profile_broker.py $(if $(ROWS),--rows $(ROWS)) $(ARGS)

fuzz: $(READY) ## Each decoder for a minute (SECONDS=60)
	$(RUN) tests/fuzz/run.py all --seconds $(or $(SECONDS),60)

mutants: $(READY) ## Plants small defects and tells which the tests notice (COUNT=200, SEED=1; goes on where it ended; ARGS=--help)
	$(RUN) -m tests.mutants.run --count $(or $(COUNT),200) --seed $(or $(SEED),1) $(ARGS)

mutant-pairs: $(READY) ## The same small defects in the sources of a commit and in today's: which ones are noticed in each (COMMIT=..., COUNT=60, SEED=1)
	$(RUN) -m tests.mutants.pairs $(COMMIT) --count $(or $(COUNT),60) --seed $(or $(SEED),1) $(ARGS)

landing: $(READY) ## Random histories of tables and topics, on the archive's own code (COUNT=10000, SEED=1, FORMATS=parquet; ARGS=--help)
	$(RUN) -m tests.spark.landing.run --count $(or $(COUNT),10000) --seed $(or $(SEED),1) --formats $(or $(FORMATS),parquet) $(ARGS)

wheel: $(READY) ## An sdist and a wheel in dist/
	$(RUN) -m build

release-dry: $(READY) ## All of a release but its publication: sdist, wheels, checks, SBOM, tried in clean environments (STEPS="sdist check" ARGS=--json)
	@$(RUN) -m release $(STEPS) $(ARGS)

clean: ## Remove what the targets made
	rm -rf $(VENV) build dist demo-out *.egg-info src/*.egg-info
