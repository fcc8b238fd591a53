# Two commands matter: `make up` runs Selvedge, `make test` says whether it works.

CARGO ?= cargo
# Absolute, as some recipes run elsewhere; one profile (dev) for every test, so that nothing is built twice.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
export SELVEDGE_BIN ?= $(CARGO_TARGET_DIR)/debug/selvedge
RELEASE_BIN := $(CARGO_TARGET_DIR)/release/selvedge
LOCAL_BIN := $(CARGO_TARGET_DIR)/local/selvedge
# rust-toolchain.toml names a version. A toolchain of that version that is installed as `stable` is used as it is:
# rustup would download the same version once more under its other name.
PINNED := $(shell sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
ifneq ($(findstring rustc $(PINNED) ,$(shell RUSTUP_TOOLCHAIN=stable rustc --version 2>/dev/null)),)
export RUSTUP_TOOLCHAIN ?= stable
endif
# What lets cargo build the next time only what changed costs time and gigabytes now: only where somebody has built so
# before.
ifeq ($(wildcard $(CARGO_TARGET_DIR)/debug/incremental/*),)
export CARGO_INCREMENTAL ?= 0
endif

PYTHON := PYTHONPATH=$(CURDIR)/.tools/python PYTHONDONTWRITEBYTECODE=1 python3
BESIDE := $(MAKE) --no-print-directory -j 2 -Oline
# Otherwise cargo would take the number of jobs from make, and not from the machine.
unexport MAKEFLAGS
# Clippy is the compiler with more warnings: when it compiles our crates, everything is linted and built once. Cargo
# calls it for each of our crates, and `__CLIPPY_HACKERY__` is clippy's own separator of arguments. `make lint` only
# checks, and builds nothing.
LINTED := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
# A step that writes nothing for SILENCE seconds is taken to hang, and `make test` has LIMIT seconds in all. Beyond
# these limits tools/watchdog prints which processes run, and ends them.
SILENCE ?= 900
LIMIT ?= 2400
WATCH := $(CURDIR)/tools/watchdog --silence $(SILENCE)
# Most tests wait for most of their time, so two at once are nearly twice as quick (tests/workers.py).
WORKERS ?= 2
RUFF := $(CURDIR)/.tools/python/bin/ruff
SHELLCHECK := $(CURDIR)/.tools/python/bin/shellcheck
# The package of CRATE, wherever its folder is.
CRATE_FOLDER = $(patsubst %/Cargo.toml,%,$(firstword $(wildcard \
	$(addsuffix /$(CRATE)/Cargo.toml,crates crates/* benches tests))))
CRATE_PACKAGE = $(shell sed -n 's/^name = "\(.*\)"/\1/p' $(CRATE_FOLDER)/Cargo.toml | head -n 1)
CRATE_TARGETS = $(if $(wildcard $(CRATE_FOLDER)/src/lib.rs),--lib,--bins)
PYTEST := cd tests && $(WATCH) black-box -- env $(PYTHON) -m pytest -p no:cacheprovider -q -n $(WORKERS) --reruns 1

.PHONY: help up build check release tools lint lint-scripts test unit fuzz blackbox torture link-torture apiprobe
.PHONY: bench bench-quick layout generate deny docs clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

up: ## build without link-time optimisation, then run a center, a cloud and two edges on this machine
	$(CARGO) build --profile local --package selvedge --bin selvedge
	$(LOCAL_BIN) up

release: ## the optimised program, target/release/selvedge; takes several times as long as `make up`
	CARGO=$(CARGO) tools/release

# With the tests, though only the programs are wanted: so cargo chooses the same features for all dependencies as
# `cargo test` does, and builds them once.
build: ## the programs and tests, linted while they are built
	$(LINTED) $(WATCH) build -- $(CARGO) build --workspace --all-targets

check: ## format, lint and unit tests of one crate in seconds: make check CRATE=store
	@test -n "$(CRATE_FOLDER)" || { echo "usage: make check CRATE=<folder>, for example CRATE=store" >&2; exit 2; }
	$(CARGO) fmt --package $(CRATE_PACKAGE) --check
	CARGO_INCREMENTAL=1 $(LINTED) $(CARGO) test --package $(CRATE_PACKAGE) $(CRATE_TARGETS) --quiet

tools: ## kubectl, helm, etcd, linters and the Python client into .tools/
	$(WATCH) tools -- tools/install

lint: lint-scripts ## formatting, clippy, and linters of Python and shell; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

lint-scripts: tools ## ruff for Python, shellcheck for shell scripts
	$(RUFF) check --quiet --no-cache . $$(git grep -lE '^#!.*python3$$')
	$(SHELLCHECK) $$(git grep -lE '^#!.*/(env )?(ba)?sh$$')

# A test that fails is run once more, and written down in RETRIED; the end of the run shows which and why, and fails if
# there are more than three. Two things at once where one of them waits for the network or has a single thread. The last command's closing line is
# the test runner's, and its exit code is ours.
test: export RETRIED := $(CARGO_TARGET_DIR)/retried.jsonl
test: export WATCHDOG_UNTIL := $(shell expr $$(date +%s) + $(LIMIT))
test: ## everything, as continuous integration runs it
	@rm -f $(RETRIED)
	$(CARGO) fmt --all --check
	$(BESIDE) build lint-scripts
	$(BESIDE) unit fuzz
	$(PYTEST)

unit: tools build ## unit, property and contract tests
	$(LINTED) SELVEDGE_REQUIRE_TOOLS=1 SELVEDGE_ETCD=$(CURDIR)/.tools/bin/etcd CARGO=$(CARGO) \
		$(WATCH) unit -- tools/unit --workspace --tests --quiet

fuzz: build ## the decoders listed in tests/fuzz on mutated input; FUZZ_SECONDS for each (default 2)
	$(WATCH) fuzz -- $(CARGO_TARGET_DIR)/debug/selvedge-fuzz --seconds $${FUZZ_SECONDS:-2}

blackbox: tools build ## only the tests of the built binary; ARGS goes to pytest
	$(PYTEST) $(ARGS)

torture: tools build ## 200 rounds of writers and kill -9
	TORTURE_ROUNDS=$${TORTURE_ROUNDS:-200} $(PYTHON) tests/torture.py

link-torture: tools build ## 200 rounds of kill -9 of center or edges, and of links that fail in every way
	LINK_ROUNDS=$${LINK_ROUNDS:-200} $(PYTHON) tests/link_torture.py

apiprobe: build ## compare with recordings of Kubernetes 1.36, by area
	@$(PYTHON) tests/apiprobe.py $(ARGS)

bench: tools release ## measure, print the table, write docs/explanation/benchmarks.md and its plots
	$(CARGO) build --release --package kbench
	$(PYTHON) benches/run --selvedge $(RELEASE_BIN) --kbench $(CARGO_TARGET_DIR)/release/kbench
	$(PYTHON) benches/placing --selvedge $(RELEASE_BIN) --kbench $(CARGO_TARGET_DIR)/release/kbench
	$(PYTHON) benches/pods --selvedge $(RELEASE_BIN)

# The order belongs to one build and is not kept in the repository.
layout: tools release ## link the release again with functions that run side by side (needs valgrind)
	$(CARGO) build --release --package kbench
	$(PYTHON) benches/layout --selvedge $(RELEASE_BIN) --kbench $(CARGO_TARGET_DIR)/release/kbench \
		--out $(CARGO_TARGET_DIR)/layout/order.txt
	CARGO=$(CARGO) tools/release

bench-quick: tools release ## the same with small numbers, printing only
	$(CARGO) build --release --package kbench
	$(PYTHON) benches/run --quick --selvedge $(RELEASE_BIN) --kbench $(CARGO_TARGET_DIR)/release/kbench

generate: ## regenerate the table of built-in kinds from the published schemas
	python3 generate/generate.py

docs: ## the book: docs/ as a site in target/book, built without network once its tool is installed
	$(WATCH) tools -- tools/install docs
	python3 tools/docs

deny: ## licences and advisories of all dependencies
	$(CARGO) deny check

clean: ## remove what was built and installed
	$(CARGO) clean
	rm -rf .tools
