"""Keys that have a given token: Murmur3 of 16 bytes, calculated backwards."""

from typing import Final

_WORD: Final = 1 << 64
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_MIX: Final = (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD)  # The factors of the last step, reversed.
_LENGTH: Final = 16


def key_of(token: int, variant: int = 0) -> bytes:
    """Return a key with the hash *token*; another one for each *variant*.

    No key has the lowest token: Cassandra replaces it by the highest.
    """
    second = _unmixed(variant)
    first = _unmixed((token - variant) % _WORD)
    h2 = (second - first) % _WORD
    h1 = (first - h2) % _WORD
    h1, h2 = h1 ^ _LENGTH, h2 ^ _LENGTH
    h2 = _turned((h2 - 0x38495AB5) * pow(5, -1, _WORD) - h1, 64 - 31)
    h1 = _turned((h1 - 0x52DCE729) * pow(5, -1, _WORD), 64 - 27)
    k1 = _turned(h1 * pow(_C2, -1, _WORD), 64 - 31) * pow(_C1, -1, _WORD)
    k2 = _turned(h2 * pow(_C1, -1, _WORD), 64 - 33) * pow(_C2, -1, _WORD)
    return b"".join((word % _WORD).to_bytes(8, "little") for word in (k1, k2))


def _unmixed(word: int) -> int:
    for factor in _MIX:
        word ^= word >> 33
        word = word * pow(factor, -1, _WORD) % _WORD
    return word ^ word >> 33


def _turned(word: int, bits: int) -> int:
    word %= _WORD
    return (word << bits | word >> (64 - bits)) % _WORD
