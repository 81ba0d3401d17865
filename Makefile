# Common commands. Each target first installs what it needs (tools/setup.sh), as root on Debian or Ubuntu.

CARGO := PATH="$$PATH:$$HOME/.cargo/bin" cargo

# Where cargo builds to.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# The program that is installed and packaged. tools/install.sh lists the variables for that.
PROGRAM ?= $(TARGET)/release/apus
export PROGRAM

.PHONY: help demo build dpdk test-dpdk lib lib-dpdk install uninstall package test test-vm fuzz bench fmt lint docs

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: build ## Compare all waiting modes on this machine, and write demo-report.html (needs root; takes under three minutes)
	$(TARGET)/release/apus demo -o demo-report.html

build: ## Build target/release/apus, and libapus
	@tools/setup.sh run
	$(CARGO) build --release -p cli -p capi --lib --bin apus

lib: ## Build libapus alone, into target/libapus: include/apus.h, lib/libapus.so, libapus.a, pkgconfig
	@tools/setup.sh run
	$(CARGO) build --release -p capi
	@BUILT=$(TARGET)/release tools/libapus.sh target/libapus

dpdk: ## Build target/release/apus-dpdk, which has ports of DPDK drivers (docs/dpdk.md)
	@tools/setup.sh dpdk
	$(CARGO) build --profile $(or $(PROFILE),release) -p cli --features dpdk --bin apus-dpdk

lib-dpdk: lib ## Build libapus-dpdk too, for DPDK applications, into the same folder: include/apus_dpdk.h, lib/libapus-dpdk.so
	@tools/setup.sh dpdk
	@tools/libapus-dpdk.sh target/libapus

test-dpdk: ## Run the tests of the DPDK ports and of libapus-dpdk; those over kernel interfaces need root
	@tools/setup.sh dpdk
	$(CARGO) test -p live-dpdk --features dpdk
	$(CARGO) test -p capi --features dpdk --test dpdk

install: ## Install what `make build` built, with completions, manual pages and units; PREFIX (/usr/local) and DESTDIR say where
	@tools/install.sh install

uninstall: ## Remove what `make install` installed, with the same PREFIX and DESTDIR
	@tools/install.sh uninstall

package: build ## Make the Debian packages in target/package: apus, and apus-dbgsym with the debug information
	@tools/setup.sh package
	@tools/package.sh

test: ## Run all tests, and list at the end which were skipped and why (with APUS_REQUIRE=all, a skip fails)
	@tools/setup.sh test
	@tools/test.sh

test-vm: ## Run the tests in emulated machines with power hardware (docs/vmlab.md); takes some minutes, needs no privilege
	@tools/setup.sh vm || true
	$(CARGO) test -p vmlab --test vm -- --ignored
	@if [ -n "$$APUS_LONG_TESTS" ] && pkg-config --exists 'libdpdk >= 22.11' 2>/dev/null; then $(CARGO) build -p cli -p capi --features cli/dpdk --lib --bin apus-dpdk; fi
	$(CARGO) test -p cli --test vm -- --ignored

fuzz: ## Run each parser with random input for FUZZ_SECONDS (20); needs stable Rust and a C++ compiler
	@tools/setup.sh fuzz
	tools/fuzz.sh

bench: ## Run the micro-benchmarks; docs/bench-goals.md, bench-throughput.md and bench-frontier.md describe the others
	@tools/setup.sh run
	$(CARGO) bench -p policy -p live --benches

fmt: ## Format the sources
	$(CARGO) fmt --all

lint: ## Check the formatting, and run clippy with warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

docs: ## Build the documentation of the crates with private items; warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items
