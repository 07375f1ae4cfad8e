#!/usr/bin/env bash
# Puts a program that counts what it does to work: train.sh HOLDFAST. The entries of the benchmark for a short time, so that all that a request may have to
# do is in it, and the demonstration, which also loads, sheds and loses replicas.
set -euo pipefail
cd "$(dirname "$0")/../.."
holdfast=$1
target=${CARGO_TARGET_DIR:-target}
PATH=$PATH:/usr/sbin scripts/need-deb.sh nginx=nginx wrk=wrk python3=python3 taskset=util-linux openssl=openssl
cargo build --quiet --locked --release --manifest-path scripts/bench/Cargo.toml --target-dir "$target/bench-tools"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# A session of its own is a scheduling group of its own.
DUR=3 REP=1 FDUR=2 FREP=1 setsid --wait python3 -B scripts/bench/bench.py --tools "$target/bench-tools/release" \
    --envoy /nowhere --holdfast "$holdfast" --out "$out" holdfast holdfast-main-job holdfast-full-policy
"$holdfast" demo
