#!/usr/bin/env python3
"""Makes and checks the vectors in this folder with code other than the product's.

places.tsv  places of keys, with xxh3.py, and with the package `xxhash` (a binding of the reference implementation in C) where it is installed
arms.tsv    arms of users under allocations, as the documentation says

    python3 check.py          compares the files with freshly made values
    python3 check.py --write  writes them
"""

import pathlib
import struct
import sys

import xxh3

try:
    import xxhash
except ImportError:
    xxhash = None

SALTS = {
    "inclusion": "holdfast/experiment-inclusion/1",
    "arm": "holdfast/experiment-arm/1",
    "layer": "holdfast/experiment-layer/1",
    "holdout": "holdfast/experiment-holdout/1",
    "subject": "holdfast/experiment-subject/1",
}
PLACES_HEAD = """\
# Places: XXH3-64, seed 0, over parts; each part is its length (u32, little endian) and its bytes; the first part is the salt. The place is
# hash * 10000 >> 64. Columns, separated by tabs: salt, hash (16 hexadecimal digits), place, then one column for each part, in hexadecimal.
"""
ARMS_HEAD = """\
# Arms. Columns, separated by tabs: salt of the experiment, bucket version, coverage of 10000, weights, user, the arm from 0 or "-" for who is not in.
# Parts of both places: salt, bucket version (u32, little endian), "user", the user. In: inclusion place < coverage. The arm ends before
# 10000 * (sum of weights up to it) // (sum of all).
"""


def hashed(purpose, parts):
    data = b"".join(struct.pack("<I", len(p)) + p for p in [SALTS[purpose].encode(), *parts])
    found = xxh3.xxh3_64(data)
    assert xxhash is None or found == xxhash.xxh3_64_intdigest(data, seed=0), data
    return found


def place(purpose, parts):
    return hashed(purpose, parts) * 10_000 >> 64


def arm(salt, version, coverage, weights, user):
    parts = [salt.encode(), struct.pack("<I", version), b"user", user.encode()]
    if place("inclusion", parts) >= coverage:
        return "-"
    at, total, ends = place("arm", parts), sum(weights), 0
    for index, weight in enumerate(weights):
        ends += weight
        if at < 10_000 * ends // total:
            return index
    raise AssertionError("the last arm ends at 10000")


def places():
    keys = ["", "u", "user-1", "caf\u00e9", "cafe\u0301", "x" * 300, "\U0001f600"]
    cases = []
    for purpose in SALTS:
        for key in keys:
            cases.append((purpose, [b"exp", struct.pack("<I", 1), b"user", key.encode()]))
        cases.append((purpose, [b"user", b"ann"]))
        cases.append((purpose, []))
        cases.append((purpose, [b"expu", b"ser"]))
        cases.append((purpose, [b"exp", b"user"]))
    # Keys at the edges: the first that have the places 0, 999, 1000 and 9999.
    for want in (0, 999, 1000, 9999):
        number = 0
        while place("inclusion", [b"edge", struct.pack("<I", 1), b"user", str(number).encode()]) != want:
            number += 1
        cases.append(("inclusion", [b"edge", struct.pack("<I", 1), b"user", str(number).encode()]))
    rows = (
        "\t".join([SALTS[purpose], f"{hashed(purpose, parts):016x}", str(place(purpose, parts)), *(p.hex() for p in parts)])
        for purpose, parts in cases
    )
    return PLACES_HEAD + "\n".join(rows) + "\n"


def arms():
    rows = []
    for salt, version, coverage, weights in [
        ("checkout", 1, 10_000, [1, 1]),
        ("checkout", 2, 10_000, [1, 1]),
        ("checkout", 1, 1_000, [1, 1, 1]),
        ("rank", 1, 5_000, [90, 0, 10]),
        ("rank", 7, 10_000, [0, 1]),
        ("rank", 7, 0, [1, 1]),
    ]:
        for number in range(20):
            user = f"user-{number}"
            shown = ",".join(map(str, weights))
            rows.append(f"{salt}\t{version}\t{coverage}\t{shown}\t{user}\t{arm(salt, version, coverage, weights, user)}")
    return ARMS_HEAD + "\n".join(rows) + "\n"


def main():
    folder = pathlib.Path(__file__).parent
    bad = 0
    for name, text in (("places.tsv", places()), ("arms.tsv", arms())):
        file = folder / name
        if "--write" in sys.argv:
            file.write_text(text)
        elif file.read_text() != text:
            print(f"{name} differs")
            bad = 1
    print("written" if "--write" in sys.argv else "differs" if bad else "the same")
    return bad


if __name__ == "__main__":
    sys.exit(main())
