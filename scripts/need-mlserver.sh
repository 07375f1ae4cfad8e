#!/usr/bin/env bash
# Installs MLServer, Triton's client, Schemathesis and kosoku into .venv-mlserver, and trains the models of the end-to-end tests there.
# Does nothing when what is there was made from the same requirements and the same training script.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${HOLDFAST_MLSERVER_VENV:-.venv-mlserver}
requirements=scripts/requirements-test.txt
tools=scripts/requirements-tools.txt
training=scripts/train_digits.py

# A Python that MLServer 1.7 supports, with the parts that make a virtual environment.
find_python() {
    local python
    for python in python3.11 python3.12 python3.10 python3.9 python3; do
        if "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 9) <= sys.version_info < (3, 13))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

# stale STAMP HASH: whether the file STAMP holds another hash, or is missing.
hash_of() { sha256sum "$@" | sha256sum | cut -d ' ' -f 1; }
stale() { [ "$(cat "$1" 2>/dev/null)" != "$2" ]; }

wanted=$(hash_of "$requirements")
if stale "$venv/requirements.stamp" "$wanted"; then
    if ! python=$(find_python); then
        scripts/need-deb.sh no-python-with-venv=python3-venv
        python=$(find_python) || { echo 'error: no Python from 3.9 to 3.12 with venv' >&2; exit 1; }
    fi
    echo "==> MLServer: installing into $venv with $("$python" --version) (about 530 MB, a minute or two)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
    echo "$wanted" > "$venv/requirements.stamp"
fi

# Tools that need nothing else than what MLServer needs: they are added to what is there.
wanted=$(hash_of "$requirements" "$tools")
if stale "$venv/tools.stamp" "$wanted"; then
    echo "==> Schemathesis and kosoku: installing into $venv (about 30 MB)"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$tools"
    echo "$wanted" > "$venv/tools.stamp"
fi

wanted=$(hash_of "$requirements" "$training")
if stale "$venv/digits/models.stamp" "$wanted"; then
    echo "==> MLServer: training the models in $venv/digits"
    rm -rf "$venv/digits"
    "$venv/bin/python" "$training" "$venv/digits"
    echo "$wanted" > "$venv/digits/models.stamp"
fi
