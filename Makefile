# Holdfast's chores. Each target installs what a plain Debian 12 machine with Rust lacks, and says what it does as it goes.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
# CI builds exactly what the lock file says; at a desk an edited Cargo.toml may update it.
LOCKED := $(if $(CI),--locked)
say = @printf '==> %s\n'

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: rust ## Build the gateway and play the demonstration: model servers, a gateway, a version flip
	$(say) 'building holdfast, optimised (some minutes the first time)'
	@$(CARGO) build $(LOCKED) --release -p holdfast
	$(say) 'holdfast demo'
	@$(CARGO) run $(LOCKED) --quiet --release -p holdfast -- demo

.PHONY: test
test: rust test-tools mlserver tokens ## Run all tests, those against a real MLServer and a real PostgreSQL among them, and Schemathesis
	$(say) 'cargo test (unit, property, end-to-end)'
	@$(CARGO) test $(LOCKED) --workspace --no-fail-fast

.PHONY: lint
lint: rust ## Check format, clippy, the repository's own rules, and cargo-deny where it is installed
	$(say) 'cargo fmt --check'
	@$(CARGO) fmt --all --check
	$(say) 'cargo clippy'
	@$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	$(say) 'cargo xtask tidy'
	@$(CARGO) xtask tidy
	@scripts/deny.sh

.PHONY: sim
sim: rust ## Run the long simulations: 1,000 seeds of every scenario, random histories of whole fleets (12,000), of residency (200,000) and of roll-outs (50,000), every order around a flip, and leases of shared limits
	$(say) 'every scenario, optimised ($(or $(HISTORIES),1000) seeds of each)'
	@$(CARGO) run $(LOCKED) --quiet --release -p holdfast -- sim run --all --seeds $(or $(HISTORIES),1000)
	$(say) 'random histories of residency, optimised ($(or $(HISTORIES),200000) of them)'
	@PROPTEST_CASES=$(or $(HISTORIES),200000) $(CARGO) test $(LOCKED) --release -p holdfast-placement --test residency_histories -- --nocapture
	$(say) 'every order around a flip, and random histories of roll-outs, optimised ($(or $(HISTORIES),50000) of them)'
	@PROPTEST_CASES=$(or $(HISTORIES),50000) $(CARGO) test $(LOCKED) --release -p holdfast-decide --test rollout -- --nocapture histories model
	$(say) 'random histories of whole fleets, optimised ($(or $(HISTORIES),12000) of them), and shared limits: the figures over 60 seeds, outages'
	@HISTORIES=$(or $(HISTORIES),12000) $(CARGO) test $(LOCKED) --release -p holdfast-sim -- --nocapture
	$(say) 'random histories of leases, optimised'
	@PROPTEST_CASES=$(or $(HISTORIES),50000) $(CARGO) test $(LOCKED) --release -p holdfast-quota --test leases --test buckets

.PHONY: docs
docs: rust ## Build the API documentation and check the links of the Markdown files
	$(say) 'cargo doc, warnings are errors'
	@RUSTDOCFLAGS='-D warnings' $(CARGO) doc $(LOCKED) --workspace --no-deps
	$(say) 'links of the Markdown files'
	@$(CARGO) xtask links

.PHONY: bench
bench: rust ## Measure latency and throughput of the released build on this machine
	@scripts/bench/run.sh

.PHONY: bench-control
bench-control: rust test-tools ## Measure the control plane: a table of 100,000 tenants, one pin of it, a thousand pins at once
	$(say) 'building holdfast and the measuring tool, optimised'
	@$(CARGO) build $(LOCKED) --release -p holdfast --bin holdfast --example control_speed
	@"$${CARGO_TARGET_DIR:-target}/release/examples/control_speed"

.PHONY: bench-limits
bench-limits: rust test-tools ## Print what three gateways admit while their Redis is well, stopped, killed and flushed (PHASE=60 seconds of each)
	@PHASE_SECONDS=$(or $(PHASE),60) $(CARGO) test $(LOCKED) -p holdfast --test limits_shared -- --nocapture the_store_may_hang_die_and_forget

.PHONY: bench-sockets
bench-sockets: rust ## Measure the memory of idle WebSockets: 15,000 over TCP, 50,000 as streams of HTTP/2
	@$(CARGO) build $(LOCKED) --release -p holdfast --bin holdfast --example idle_sockets
	@for what in 'tcp 15000' 'h2 50000'; do \
		echo "$$what"; "$${CARGO_TARGET_DIR:-target}/release/examples/idle_sockets" "$${CARGO_TARGET_DIR:-target}/release/holdfast" $$what; done

.PHONY: counts
counts: rust ## Count instructions per request and decision; UPDATE=1 makes them the ones to compare with
	@scripts/counts/run.sh $(if $(UPDATE),--update)

.PHONY: release
release: rust ## Build the binary that is released, and print where it is and how large
	@ls -lh "$$(scripts/release.sh)"

# What the targets above need.

.PHONY: rust
rust:
	@scripts/need-rust.sh

.PHONY: test-tools
test-tools:
	@scripts/need-deb.sh promtool=prometheus curl=curl pg_ctlcluster=postgresql redis-server=redis-server setpriv=util-linux

.PHONY: mlserver
mlserver:
	@scripts/need-mlserver.sh

.PHONY: tokens
tokens:
	@scripts/need-tokens.sh
