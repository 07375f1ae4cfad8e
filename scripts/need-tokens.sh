#!/usr/bin/env bash
# Installs PyJWT into .venv-tokens, where tests have tokens made by somebody else. Does nothing when what is there was made from the same requirements.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${HOLDFAST_TOKENS_VENV:-.venv-tokens}
requirements=scripts/requirements-tokens.txt
wanted=$(sha256sum "$requirements" | cut -d ' ' -f 1)
[ "$(cat "$venv/requirements.stamp" 2>/dev/null)" = "$wanted" ] && exit 0

if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    scripts/need-deb.sh no-python-with-venv=python3-venv
fi
echo "==> PyJWT: installing into $venv with $(python3 --version)"
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
echo "$wanted" > "$venv/requirements.stamp"
