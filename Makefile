# Two commands matter: `make up` runs Selvedge, `make test` says whether it works.

CARGO ?= cargo
# Absolute, as some recipes run elsewhere; one profile (dev) for every test, so that nothing is built twice.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
export SELVEDGE_BIN ?= $(CARGO_TARGET_DIR)/debug/selvedge
RELEASE_BIN := $(CARGO_TARGET_DIR)/release/selvedge
# What lets cargo build the next time only what changed costs time and gigabytes now: only where somebody has built so before.
ifeq ($(wildcard $(CARGO_TARGET_DIR)/debug/incremental/*),)
export CARGO_INCREMENTAL ?= 0
endif

PYTHON := PYTHONPATH=$(CURDIR)/.tools/python PYTHONDONTWRITEBYTECODE=1 python3
BESIDE := $(MAKE) --no-print-directory -j 2 -Oline
# Otherwise cargo would take the number of jobs from make, and not from the machine.
unexport MAKEFLAGS
# Clippy is the compiler with more warnings: when it compiles our crates, everything is linted and built once. Cargo names it for
# each of our crates and keeps the dependencies; the odd words end each argument. `make lint` only looks, and builds nothing.
LINTED := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
# What writes nothing for so many seconds hangs, and `make test` has LIMIT seconds for all it does. Beyond that, tools/watchdog says what runs and
# ends it.
SILENCE ?= 900
LIMIT ?= 2400
WATCH := $(CURDIR)/tools/watchdog --silence $(SILENCE)
# Most tests wait for most of their time, so two at once are nearly twice as quick (tests/workers.py).
WORKERS ?= 2
PYTEST := cd tests && $(WATCH) black-box -- env $(PYTHON) -m pytest -p no:cacheprovider -q -n $(WORKERS) --reruns 1

.PHONY: help up build tools lint test unit fuzz blackbox torture link-torture apiprobe bench bench-quick layout generate deny clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

up: ## build for release, then run a center, a cloud and two edges on this machine
	$(CARGO) build --release --bin selvedge
	$(RELEASE_BIN) up

# With the tests, though only the programs are wanted: so cargo chooses the same features for all dependencies as
# `cargo test` does, and builds them once.
build: ## the programs and tests, linted while they are built
	$(LINTED) $(WATCH) build -- $(CARGO) build --workspace --all-targets

tools: ## kubectl, helm, etcd and the Python client into .tools/
	$(WATCH) tools -- tools/install

lint: ## formatting and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

# Two things at once where one of them waits for the network or has a single thread. The last command's closing line is the test
# runner's, and its exit code is ours.
test: export WATCHDOG_UNTIL := $(shell expr $$(date +%s) + $(LIMIT))
test: ## everything, as continuous integration runs it
	$(CARGO) fmt --all --check
	$(BESIDE) build tools
	$(BESIDE) unit fuzz
	$(PYTEST)

unit: tools build ## unit, property and contract tests
	$(LINTED) SELVEDGE_REQUIRE_TOOLS=1 SELVEDGE_ETCD=$(CURDIR)/.tools/bin/etcd CARGO=$(CARGO) \
		$(WATCH) unit -- tools/unit --workspace --tests --quiet

fuzz: build ## every decoder on mutated input; FUZZ_SECONDS for each (default 2)
	$(WATCH) fuzz -- $(CARGO_TARGET_DIR)/debug/selvedge-fuzz --seconds $${FUZZ_SECONDS:-2}

blackbox: tools build ## only the tests of the built binary; ARGS goes to pytest
	$(PYTEST) $(ARGS)

torture: tools build ## 200 rounds of writers and kill -9
	TORTURE_ROUNDS=$${TORTURE_ROUNDS:-200} $(PYTHON) tests/torture.py

link-torture: tools build ## 200 rounds of kill -9 of center or edges, and of links that fail in every way
	LINK_ROUNDS=$${LINK_ROUNDS:-200} $(PYTHON) tests/link_torture.py

apiprobe: build ## compare with recordings of Kubernetes 1.36, by area
	@$(PYTHON) tests/apiprobe.py $(ARGS)

bench: tools ## measure, print the table, write docs/benchmarks.md and its plots
	$(CARGO) build --release --bin selvedge --bin kbench
	$(PYTHON) benches/run --selvedge $(RELEASE_BIN) --kbench $(CARGO_TARGET_DIR)/release/kbench
	$(PYTHON) benches/placing --selvedge $(RELEASE_BIN) --kbench $(CARGO_TARGET_DIR)/release/kbench
	$(PYTHON) benches/pods --selvedge $(RELEASE_BIN)

layout: tools ## find out which functions a server runs, for the linker to put side by side (needs valgrind)
	$(CARGO) build --release --bin selvedge --bin kbench
	$(PYTHON) benches/layout --selvedge $(RELEASE_BIN) --kbench $(CARGO_TARGET_DIR)/release/kbench

bench-quick: tools ## the same with small numbers, printing only
	$(CARGO) build --release --bin selvedge --bin kbench
	$(PYTHON) benches/run --quick --selvedge $(RELEASE_BIN) --kbench $(CARGO_TARGET_DIR)/release/kbench

generate: ## regenerate the table of built-in kinds from the published schemas
	generate/run

deny: ## licences and advisories of all dependencies
	$(CARGO) deny check

clean: ## remove what was built and installed
	$(CARGO) clean
	rm -rf .tools
