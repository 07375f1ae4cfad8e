#!/usr/bin/env bash
# Installs Debian packages whose commands are missing: need-deb.sh COMMAND=PACKAGE ...
set -euo pipefail

missing=()
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "error: these packages are missing: ${missing[*]}. As root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    sudo=(sudo)
fi
if ! command -v apt-get >/dev/null; then
    echo "error: no apt-get here; install what provides: $*" >&2
    exit 1
fi

# Only the programs of these packages are wanted: on a machine with systemd their servers must not start.
for service in prometheus postgresql nginx haproxy; do
    if [[ " ${missing[*]} " == *" $service "* && -d /run/systemd/system ]]; then
        echo "==> masking $service.service, only its programs are needed (to undo: systemctl unmask $service)"
        "${sudo[@]}" systemctl mask --quiet "$service.service"
    fi
done
echo "==> apt-get install ${missing[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends "${missing[@]}"
