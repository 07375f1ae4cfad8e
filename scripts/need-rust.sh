#!/usr/bin/env bash
# Checks that cargo, rustfmt, clippy and a C compiler are there, and adds what rustup can add.
set -euo pipefail

if ! command -v cargo >/dev/null; then
    echo 'error: no cargo. Install Rust with rustup, see https://rustup.rs' >&2
    exit 1
fi
for component in rustfmt clippy; do
    tool=cargo-${component/rustfmt/fmt}
    if ! "$tool" --version >/dev/null 2>&1; then
        echo "==> rustup component add $component"
        rustup component add "$component"
    fi
done
# Some crates have parts in C.
"$(dirname "$0")/need-deb.sh" cc=gcc
