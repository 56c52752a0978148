"""Encrypted blocks: what opens them, and what is said of those that do not open."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.commitlog.compression import BlockError
from headrace.sources.cassandra.commitlog.encryption import SectionCipher
from headrace.sources.cassandra.errors import BadCipherTextError, BadLengthError, WrongKeyError
from headrace.sources.cassandra.keystore.ciphers import SegmentKey
from helpers.logs.wrapped_log import IV, KEY, block, blocks

CONTENT = b"What is written twice, is written twice. " * 10


def unpacked(packed: bytes, size: int, key: SegmentKey | None = None) -> bytes:
    """Return *size* bytes out of *packed*."""
    room = bytearray(size)
    cipher = SectionCipher(key or SegmentKey("k", KEY), IV)
    cipher.unpack(memoryview(packed), memoryview(room))
    return bytes(room)


@given(content=st.binary(max_size=300), of=st.integers(1, 100))
def test_blocks_of_any_size(content: bytes, of: int) -> None:
    """Each begins with the same vector; together they are the section."""
    assert content == unpacked(blocks(content, of=of), len(content))


def test_a_wrong_key_is_distinguished_from_damage() -> None:
    """It opens no block; a key that opened one before, or opens another, is the right one."""
    damaged = bytearray(blocks(CONTENT, of=100))
    damaged[8] ^= 1  # The first byte of the first block's cipher text.
    alone = bytes(damaged[: len(block(CONTENT[:100]))])
    proven = SegmentKey("k", KEY)
    unpacked(blocks(CONTENT), len(CONTENT), proven)

    with pytest.raises(WrongKeyError, match="the key 'other' does not open it"):
        unpacked(blocks(CONTENT), len(CONTENT), SegmentKey("other", bytes(16)))
    with pytest.raises(WrongKeyError):
        unpacked(alone, 100)
    with pytest.raises(BlockError, match="damaged") as another:
        unpacked(bytes(damaged), len(CONTENT))
    with pytest.raises(BlockError, match="damaged") as before:
        unpacked(alone, 100, proven)
    assert another.value.kind is before.value.kind is BadCipherTextError


@pytest.mark.parametrize("place", range(8, len(block(CONTENT)), 7))
def test_damaged_cipher_text(place: int) -> None:
    """Wherever it is, and padding that is wrong too, it is named, or found by an entry's sum."""
    damaged = bytearray(block(CONTENT))
    damaged[place] ^= 0x10
    key = SegmentKey("k", KEY, proven=True)
    kinds = []
    content = b""
    try:
        content = unpacked(bytes(damaged), len(CONTENT), key)
    except BlockError as error:
        kinds.append(error.kind)

    assert content != CONTENT
    assert kinds == ([] if content else [BadCipherTextError])


GOOD = block(CONTENT)
SEALED, PLAIN = struct.unpack(">ii", GOOD[:8])


@pytest.mark.parametrize(
    "packed",
    [
        GOOD[:7],
        GOOD[:-1],
        GOOD[:-16],
        GOOD + b"\0",
        GOOD + bytes(8),
        struct.pack(">ii", SEALED + 16, PLAIN) + GOOD[8:],
        struct.pack(">ii", SEALED - 1, PLAIN) + GOOD[8:],
        struct.pack(">ii", -16, PLAIN) + GOOD[8:],
        struct.pack(">ii", 2**31 - 16, PLAIN) + GOOD[8:],
        struct.pack(">ii", SEALED, SEALED) + GOOD[8:],
        struct.pack(">ii", SEALED, SEALED - 17) + GOOD[8:],
        struct.pack(">ii", SEALED, -1) + GOOD[8:],
        GOOD + GOOD,
        block(CONTENT[:-1]),
        b"",
    ],
)
def test_lengths_that_lie(packed: bytes) -> None:
    """Those of a block, of what is in it, and of the section must agree."""
    with pytest.raises(BlockError) as error:
        unpacked(packed, len(CONTENT))

    assert error.value.kind is BadLengthError


def test_two_lengths_of_a_block_must_agree() -> None:
    """If they do not, the block is damaged."""
    with pytest.raises(BlockError) as error:
        unpacked(block(CONTENT, size=3), len(CONTENT), SegmentKey("k", KEY, proven=True))

    assert error.value.kind is BadCipherTextError


def test_a_key_is_not_shown() -> None:
    """Its representation has its name only."""
    assert "k" in repr(SegmentKey("k", KEY))
    assert KEY.hex() not in repr(SegmentKey("k", KEY))
    assert repr(KEY) not in repr(SegmentKey("k", KEY))
