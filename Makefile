# What to type. Each target installs what it needs first (tools/setup.sh), as root on Debian or Ubuntu.

CARGO := PATH="$$PATH:$$HOME/.cargo/bin" cargo

.PHONY: help demo build test bench fmt lint docs

help: ## Show this
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: build ## All ways of waiting beside each other, on this machine: demo-report.html (root; under three minutes)
	target/release/apus demo -o demo-report.html

build: ## Build target/release/apus
	@tools/setup.sh run
	$(CARGO) build --release --bin apus

test: ## All tests; those of the lab run as root and say so where they cannot
	@tools/setup.sh test
	$(CARGO) test --workspace

bench: ## Micro-benchmarks; adaptive's goals: cargo bench -p tester --bench goals; against DPDK: benches/throughput.py
	@tools/setup.sh run
	$(CARGO) bench -p policy -p live --benches

fmt: ## Format the sources
	$(CARGO) fmt --all

lint: ## Formatting and clippy, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

docs: ## The crates' documentation, private items included, warnings denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items
