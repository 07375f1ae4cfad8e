"""XXH3-64 with seed 0, from the specification: so that check.py needs nothing but Python."""

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364ea"
    "c5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
MASK = (1 << 64) - 1
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def word(data, at, size=8):
    return int.from_bytes(data[at : at + size], "little")


def swapped(value, size):
    return int.from_bytes(value.to_bytes(size, "little"), "big")


def rotated(value, by):
    return ((value << by) | (value >> (64 - by))) & MASK


def folded(a, b):
    wide = a * b
    return (wide ^ (wide >> 64)) & MASK


def avalanche(h):
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & MASK
    return h ^ (h >> 32)


def avalanche_64(h):
    h = (h ^ (h >> 33)) * P64[1] & MASK
    h = (h ^ (h >> 29)) * P64[2] & MASK
    return h ^ (h >> 32)


def mixed(data, at, secret):
    return folded(word(data, at) ^ word(SECRET, secret), word(data, at + 8) ^ word(SECRET, secret + 8))


def short(data):
    size = len(data)
    if size > 8:
        low = word(data, 0) ^ word(SECRET, 24) ^ word(SECRET, 32)
        high = word(data, size - 8) ^ word(SECRET, 40) ^ word(SECRET, 48)
        return avalanche((size + swapped(low, 8) + high + folded(low, high)) & MASK)
    if size >= 4:
        h = (word(data, size - 4, 4) + (word(data, 0, 4) << 32)) ^ word(SECRET, 8) ^ word(SECRET, 16)
        h ^= rotated(h, 49) ^ rotated(h, 24)
        h = h * 0x9FB21C651E98DF25 & MASK
        h ^= (h >> 35) + size
        h = h * 0x9FB21C651E98DF25 & MASK
        return h ^ (h >> 28)
    if size:
        all_three = (data[0] << 16) | (data[size >> 1] << 24) | data[-1] | (size << 8)
        return avalanche_64(all_three ^ word(SECRET, 0, 4) ^ word(SECRET, 4, 4))
    return avalanche_64(word(SECRET, 56) ^ word(SECRET, 64))


def stripe(acc, data, at, secret):
    for lane in range(8):
        value = word(data, at + 8 * lane)
        key = value ^ word(SECRET, secret + 8 * lane)
        acc[lane ^ 1] = (acc[lane ^ 1] + value) & MASK
        acc[lane] = (acc[lane] + (key & 0xFFFFFFFF) * (key >> 32)) & MASK


def long(data):
    size = len(data)
    acc = [P32[2], *P64[:4], P32[1], P64[4], P32[0]]
    for number in range((size - 1) // 64):
        stripe(acc, data, 64 * number, 8 * (number % 16))
        if number % 16 == 15:
            for lane in range(8):
                value = acc[lane] ^ (acc[lane] >> 47) ^ word(SECRET, 128 + 8 * lane)
                acc[lane] = value * P32[0] & MASK
    stripe(acc, data, size - 64, 121)
    h = size * P64[0]
    for pair in range(4):
        h += folded(acc[2 * pair] ^ word(SECRET, 11 + 16 * pair), acc[2 * pair + 1] ^ word(SECRET, 19 + 16 * pair))
    return avalanche(h & MASK)


def xxh3_64(data):
    size = len(data)
    if size <= 16:
        return short(data)
    if size > 240:
        return long(data)
    h = size * P64[0] & MASK
    if size <= 128:
        for pair in range((size - 1) // 32, -1, -1):
            h += mixed(data, 16 * pair, 32 * pair) + mixed(data, size - 16 * (pair + 1), 32 * pair + 16)
        return avalanche(h & MASK)
    for block in range(8):
        h += mixed(data, 16 * block, 16 * block)
    h = avalanche(h & MASK)
    for block in range(8, size // 16):
        h += mixed(data, 16 * block, 16 * (block - 8) + 3)
    return avalanche((h + mixed(data, size - 16, 136 - 17)) & MASK)
