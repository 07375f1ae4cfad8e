#!/usr/bin/env bash
# Runs cargo-deny when it is installed. `cargo xtask tidy` has already checked sources, banned crates and this platform's licences.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v cargo-deny >/dev/null; then
    echo '==> cargo deny: not installed; licences of other platforms are not checked (cargo install --locked cargo-deny)'
    exit 0
fi
# Advisories need the advisory database from the network: `cargo deny check advisories`, as a job of its own.
echo '==> cargo deny check bans licenses sources'
cargo deny --all-features check --hide-inclusion-graph bans licenses sources
