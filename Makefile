# What to type. Each target installs what it needs first (tools/setup.sh), as root on Debian or Ubuntu.

CARGO := PATH="$$PATH:$$HOME/.cargo/bin" cargo

# Where cargo builds to.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What is installed and packaged; variables for that: tools/install.sh.
PROGRAM ?= $(TARGET)/release/apus
export PROGRAM

.PHONY: help demo build install uninstall package test test-vm fuzz bench fmt lint docs

help: ## Show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: build ## All ways of waiting beside each other, on this machine: demo-report.html (root; under three minutes)
	$(TARGET)/release/apus demo -o demo-report.html

build: ## Build target/release/apus
	@tools/setup.sh run
	$(CARGO) build --release --bin apus

install: ## Install what `make build` built, with completions, manual pages and units: PREFIX (/usr/local), DESTDIR
	@tools/install.sh install

uninstall: ## Remove what `make install` installed, with the same PREFIX and DESTDIR
	@tools/install.sh uninstall

package: build ## Debian packages in target/package: apus, and apus-dbgsym with the debug information
	@tools/setup.sh package
	@tools/package.sh

test: ## All tests; what was skipped, and why, is listed at the end (APUS_REQUIRE=all: a skip fails)
	@tools/setup.sh test
	@tools/test.sh

test-vm: ## The tests that boot emulated machines with power hardware (docs/vmlab.md): some minutes, no privilege
	@tools/setup.sh vm || true
	$(CARGO) test -p vmlab --test vm -- --ignored
	$(CARGO) test -p cli --test vm -- --ignored

fuzz: ## Every parser against made-up input, FUZZ_SECONDS (20) each; stable Rust, a C++ compiler
	@tools/setup.sh fuzz
	tools/fuzz.sh

bench: ## Micro-benchmarks; adaptive's goals: cargo bench -p tester --bench goals; against DPDK: benches/throughput.py, benches/frontier.py
	@tools/setup.sh run
	$(CARGO) bench -p policy -p live --benches

fmt: ## Format the sources
	$(CARGO) fmt --all

lint: ## Formatting and clippy, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

docs: ## The crates' documentation, private items included, warnings denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items
