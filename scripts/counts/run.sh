#!/usr/bin/env bash
# Counts the instructions of a decision, an answer's check, a whole request and so on, and compares them with scripts/counts/baseline.txt:
# run.sh [--update]. Exit code 1: a figure rose by more than 5 % and the unreleased part of CHANGELOG.md has no word on it, or something broke.
# --update writes the baseline, under the same condition. See docs/benchmarks.md.
set -euo pipefail
cd "$(dirname "$0")/../.."

case ${1:-} in
    '') verb=check ;;
    --update) verb=update ;;
    *) sed -n '2,4s/^# //p' scripts/counts/run.sh; exit 2 ;;
esac
scripts/need-deb.sh valgrind=valgrind cc=gcc flock=util-linux

cargo=${CARGO:-cargo}
locked=${CI:+--locked}
target=${CARGO_TARGET_DIR:-target}
echo '==> building the programs to count, optimised (some minutes the first time)'
# shellcheck disable=SC2086
"$cargo" build $locked --profile counts -p holdfast-counts

# The upstreams listen at fixed addresses: another run on this machine has to wait. The folder is one that everybody may read.
exec 9</tmp
flock --timeout 600 9 || { echo 'error: another run of this script does not end' >&2; exit 1; }

# Where things lie in memory depends on the length of paths and on the environment: both are the same everywhere.
room=$(mktemp -d /tmp/counts.XXXXXX)
trap 'rm -rf "$room"' EXIT
cp "$target/counts/holdfast-counts" "$room/"
cc -Wall -Werror -O2 -shared -fPIC -o "$room/still.so" scripts/counts/still.c

# Prints the instructions of one lap: count NAME LAPS.
count() {
    local more=() log="$room/log" sum
    if [ "$1" = request ]; then
        rm -rf "$room/fifo" "$room/fifo.state" "$room/fifo.audit"
        mkdir "$room/fifo.audit"
        mkfifo "$room/fifo" "$room/fifo.audit/lock"
        more=("$room/fifo")
    fi
    if ! env -i LD_PRELOAD="$room/still.so" timeout 300 "$(command -v valgrind)" --tool=callgrind --callgrind-out-file="${CALLGRIND_OUT:-/dev/null}" \
        --collect-atstart=no --toggle-collect='*measured_laps*' "$room/holdfast-counts" "$1" "$2" "${more[@]}" >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
    sum=$(awk '/ Collected : / { print $NF }' "$log")
    [ "${sum:-0}" -gt "$2" ] || { echo "error: $1: nothing was counted" >&2; return 1; }
    awk -v name="$1" -v sum="$sum" -v laps="$2" 'BEGIN { printf "%s %.0f\n", name, sum / laps }'
}

has_avx2=$(grep -qw avx2 /proc/cpuinfo && echo ' with avx2' || true)
{
    echo "on $(rustc --version); $(valgrind --version); glibc $(getconf GNU_LIBC_VERSION | cut -d' ' -f2); $(uname -m)$has_avx2"
    for name in decide-100 decide-100000 choose answer admit admit-all record; do
        echo "==> $name" >&2
        count "$name" 10000
    done
    for name in direct floor request; do
        echo "==> $name" >&2
        count "$name" 1000
    done
} >"$room/figures"
"$cargo" xtask counts "$verb" "$room/figures"
