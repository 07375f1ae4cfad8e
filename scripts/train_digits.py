"""Trains four versions of a digit classifier and writes them as model folders for MLServer.

    python train_digits.py FOLDER

The data are the 1,797 images of hand-written digits that scikit-learn ships. The versions differ so much that the version can be told
from the predictions alone: each relabels the digits by a rotation of its own, and each is another kind of model.

Writes FOLDER/digits-1 .. digits-4 (model.joblib, model-settings.json) and FOLDER/expected.json:
    {"inputs": [[64 numbers], ...], "predictions": {"1": [label, ...], ...}}
"""

import json
import os
import sys
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

PROBES = 20
VERSIONS = {
    "1": LogisticRegression(max_iter=200),
    "2": KNeighborsClassifier(3),
    "3": GaussianNB(var_smoothing=1e-2),
    "4": RandomForestClassifier(40, random_state=4),
}


def settings(version: str) -> dict:
    return {
        "name": f"digits-{version}",
        "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./model.joblib", "version": version},
    }


def main(folder: Path) -> None:
    digits = load_digits()
    images = digits.data / 16.0
    probes = images[-PROBES:]
    predictions = {}
    for version, model in VERSIONS.items():
        labels = (digits.target + int(version) - 1) % 10
        model.fit(images[:-PROBES], labels[:-PROBES])
        predictions[version] = [int(label) for label in model.predict(probes)]
        right = np.mean(np.array(predictions[version]) == labels[-PROBES:])
        print(f"digits-{version}: {type(model).__name__}, right on {right:.0%} of {PROBES} probes", flush=True)
        target = folder / f"digits-{version}"
        target.mkdir(parents=True, exist_ok=True)
        joblib.dump(model, target / "model.joblib")
        (target / "model-settings.json").write_text(json.dumps(settings(version), indent=2) + "\n")
    for a in predictions:
        for b in predictions:
            same = sum(x == y for x, y in zip(predictions[a], predictions[b]))
            if a < b and same > PROBES // 2:
                sys.exit(f"versions {a} and {b} agree on {same} of {PROBES} probes: they cannot be told apart")
    # Last, and in one step: its presence says that all else is complete.
    done = folder / "expected.json"
    partial = folder / "expected.json.tmp"
    partial.write_text(json.dumps({"inputs": probes.tolist(), "predictions": predictions}))
    os.replace(partial, done)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
