#!/usr/bin/env bash
# Builds the program that is released and prints its path: release.sh. It is built with counters, put to work for two minutes, and built again with what was
# counted, so that what is done for every request lies together and in order (profile-guided optimisation). Takes twice as long as one build.
# PROFILED=0: one build, without a profile. See docs/benchmarks.md.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "==> $*" >&2; }
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
cargo=${CARGO:-cargo}
locked=${CI:+--locked}
host=$(rustc -vV | sed -n 's/^host: //p')
merge=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata

if [ "${PROFILED:-1}" = 1 ] && [ ! -x "$merge" ] && command -v rustup >/dev/null; then
    say 'rustup component add llvm-tools'
    rustup component add llvm-tools >&2 || true
fi
if [ "${PROFILED:-1}" != 1 ] || [ ! -x "$merge" ]; then
    [ "${PROFILED:-1}" != 1 ] || say "no llvm-profdata (the component llvm-tools of rustup): building without a profile"
    say 'building holdfast with the profile dist (link-time optimisation: several minutes)'
    # shellcheck disable=SC2086
    "$cargo" build $locked --profile dist -p holdfast --bin holdfast
    echo "$target/dist/holdfast"
    exit 0
fi

# With a target named, build scripts and macros are built without counters.
build() {
    # shellcheck disable=SC2086
    CARGO_TARGET_DIR="$target/profiled" RUSTFLAGS="${RUSTFLAGS:-} $1" \
        "$cargo" build $locked --profile dist -p holdfast --bin holdfast --target "$host"
}
built=$target/profiled/$host/dist/holdfast
counts=$target/profiled/counts

# The profile belongs to a state of the sources: the same is not counted again.
files=$(find crates scripts/bench scripts/release.sh Cargo.toml Cargo.lock -type f -not -path '*/__pycache__/*' | LC_ALL=C sort)
state=$({ rustc -vV; echo "$files" | xargs -d '\n' sha256sum; } | sha256sum | cut -d' ' -f1)
if [ "$(cat "$counts/state" 2>/dev/null)" != "$state" ]; then
    rm -rf "$counts"
    mkdir -p "$counts"
    say 'building holdfast with counters (link-time optimisation: several minutes)'
    build "-Cprofile-generate=$counts/raw"
    say 'the work that is counted: some of the benchmark, and the demonstration'
    scripts/bench/train.sh "$built" >"$counts/log" 2>&1 || { cat "$counts/log" >&2; exit 1; }
    "$merge" merge -o "$counts/merged" "$counts/raw"
    rm -rf "$counts/raw"
    echo "$state" >"$counts/state"
fi
say 'building holdfast with what was counted (link-time optimisation: several minutes)'
build "-Cprofile-use=$counts/merged"
mkdir -p "$target/dist"
# Not over the old one: that may be running.
cp "$built" "$target/dist/holdfast.new"
mv "$target/dist/holdfast.new" "$target/dist/holdfast"
echo "$target/dist/holdfast"
