#!/usr/bin/env python3
"""Makes and checks the vectors in this folder with code other than the product's.

hash.tsv    the stable hash, with the package `xxhash` (a binding of the reference implementation in C)
orders.tsv  orders of preference on a ring and by weighted rendezvous, the latter with logarithms of 60 digits

    python3 check.py          compares the files with freshly made values
    python3 check.py --write  writes them
"""

import decimal
import pathlib
import struct
import sys

import xxhash

HEAD = """\
# Stable hash: XXH3-64, seed 0, over parts; each part is its length (u32, little endian) and its bytes; the first part is the salt.
# Columns, separated by tabs: salt, hash (16 hexadecimal digits), then one column for each part, in hexadecimal.
"""

CASES = [
    ("holdfast/subset/1", [b"acme", b"screen", b"1"]),
    ("holdfast/subset/1", [b"acme", b"screen", b"2"]),
    ("holdfast/subset/1", [b"acme", b"screen", b"11"]),
    ("holdfast/subset/1", [b"acmes", b"creen", b"1"]),
    ("holdfast/subset/1", [b"globex", b"fraud-eu.prod_2", b"2024-05-01"]),
    ("holdfast/subset/1", [b"t" * 128, b"m" * 128, b"v" * 128]),
    ("holdfast/subset/1", [b"", b"", b"1"]),
    ("holdfast/load-owner/1", [b"screening", b"r1"]),
    ("holdfast/load-owner/1", [b"screening", b"r2"]),
    ("holdfast/slot/1", []),
    ("holdfast/slot/1", [b"acme"]),
    ("holdfast/slot/1", [bytes(range(256))]),
    ("holdfast/ring-point/1", [b"r1", struct.pack("<I", 0)]),
    ("holdfast/ring-point/1", [b"r1", struct.pack("<I", 1)]),
    ("holdfast/ring-point/1", [b"r1", struct.pack("<I", 99)]),
    ("holdfast/ring-point/1", [b"r2", struct.pack("<I", 0)]),
    ("holdfast/rendezvous/1", [struct.pack("<Q", 0), b"r1"]),
    ("holdfast/rendezvous/1", [struct.pack("<Q", 2**64 - 1), b"r1"]),
    ("holdfast/rendezvous/1", [struct.pack("<Q", 0x0123456789ABCDEF), b"replica-with-a-longer-name"]),
    ("holdfast/cache-key/1", [b"text", b"42"]),
    ("holdfast/cache-key/1", [b"caf\xc3\xa9"]),
    ("holdfast/limiter-key/1", [b"tenant", b"acme"]),
    ("holdfast/limiter-key/1", [b"user", b"acme", b"alice"]),
    ("holdfast/limiter-key/1", [b"x" * 1000]),
    ("holdfast/split-lot/1", [b"acme", b"screen", b"order-1"]),
    ("holdfast/split-lot/1", [b"acme", b"screen", b"order-2"]),
    ("holdfast/shadow-lot/1", [b"acme", b"screen", b"order-1"]),
    ("holdfast/shadow-lot/1", [b"acme", b"screen", b"order-2"]),
]


def stable_hash(salt, parts):
    data = b"".join(struct.pack("<I", len(p)) + p for p in [salt.encode(), *parts])
    return xxhash.xxh3_64_intdigest(data, seed=0)


MEMBERS = [("r1", 1), ("r2", 1), ("r3", 2), ("r4", 1), ("idle", 0)]

ORDERS_HEAD = """\
# Orders of preference over the members r1 (weight 1), r2 (1), r3 (2), r4 (1), idle (0).
# Columns, separated by tabs: way, key (16 hexadecimal digits), the members' names, separated by commas.
# ring: 100 points for each unit of weight. rendezvous: least -log2((hash + 1) / 2^64) / weight.
"""


def ring(key):
    points = sorted(
        (stable_hash("holdfast/ring-point/1", [name.encode(), struct.pack("<I", node)]), name)
        for name, weight in MEMBERS
        for node in range(100 * weight)
    )
    start = next((i for i, (position, _) in enumerate(points) if position >= key), 0)
    return list(dict.fromkeys(name for _, name in points[start:] + points[:start]))


def rendezvous(key):
    def score(member):
        name, weight = member
        hashed = stable_hash("holdfast/rendezvous/1", [struct.pack("<Q", key), name.encode()])
        return -(decimal.Decimal(hashed + 1) / decimal.Decimal(2**64)).ln() / weight

    return [name for name, _ in sorted((m for m in MEMBERS if m[1] > 0), key=score)]


def hash_lines():
    return ["\t".join([salt, f"{stable_hash(salt, parts):016x}", *(p.hex() for p in parts)]) for salt, parts in CASES]


def order_lines():
    decimal.getcontext().prec = 60
    keys = [0, 2**64 - 1] + [stable_hash("holdfast/subset/1", [b"acme", b"screen", str(i).encode()]) for i in range(14)]
    ways = [("ring", ring), ("rendezvous", rendezvous)]
    return [f"{name}\t{key:016x}\t{','.join(way(key))}" for name, way in ways for key in keys]


def main():
    folder = pathlib.Path(__file__).parent
    files = {"hash.tsv": (HEAD, hash_lines()), "orders.tsv": (ORDERS_HEAD, order_lines())}
    differ = False
    for name, (head, lines) in files.items():
        text = head + "\n".join(lines) + "\n"
        if "--write" in sys.argv[1:]:
            (folder / name).write_text(text)
            print(f"{name}: wrote {len(lines)} vectors")
        elif (folder / name).read_text() != text:
            print(f"{name}: differs from the independent implementation", file=sys.stderr)
            differ = True
        else:
            print(f"{name}: {len(lines)} vectors agree")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
