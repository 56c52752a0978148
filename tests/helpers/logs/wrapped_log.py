"""Wraps sections as Cassandra does, and in invalid ways: written from the format alone."""

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final

import cramjam
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

SEGMENT_ID: Final = 1_700_000_000_000
KEY: Final = bytes(range(16))
IV: Final = bytes(range(16, 32))
ENCRYPTED: Final = {
    "encCipher": "AES/CBC/PKCS5Padding",
    "encIV": IV.hex(),
    "encKeyAlias": "testing:1",
}


def lz4(content: bytes) -> bytes:
    """Return *content* in the format of Cassandra's LZ4Compressor."""
    block = bytes(cramjam.lz4.compress_block(content, store_size=False))
    return struct.pack("<i", len(content)) + block


def block(content: bytes, *, key: bytes = KEY, size: int | None = None) -> bytes:
    """Return *content* as one encrypted block; *size* is the length in its header."""
    plain = struct.pack(">i", len(content) if size is None else size) + lz4(content)
    padding = 16 - len(plain) % 16
    encryptor = Cipher(algorithms.AES(key), modes.CBC(IV)).encryptor()
    sealed = encryptor.update(plain + bytes((padding,)) * padding)
    return struct.pack(">ii", len(sealed), len(plain)) + sealed


def blocks(content: bytes, *, of: int = 64 * 1024) -> bytes:
    """Return *content* as encrypted blocks of *of* bytes."""
    return b"".join(block(content[i : i + of]) for i in range(0, len(content), of))


PACKERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "LZ4Compressor": lz4,
    "SnappyCompressor": lambda content: bytes(cramjam.snappy.compress_raw(content)),
    "DeflateCompressor": lambda content: zlib.compress(content) if content else b"",
    "ZstdCompressor": lambda content: bytes(cramjam.zstd.compress(content)),
    "NoopCompressor": bytes,
    "AES": blocks,
}


def parameters_of(packer: str) -> dict[str, object]:
    """Return the header's parameters for the packer of that name."""
    return dict(ENCRYPTED) if packer == "AES" else {"compressionClass": packer}


def entry(raw: bytes) -> bytes:
    """Return a mutation between its size and its checksums."""
    size = struct.pack(">i", len(raw))
    crc = zlib.crc32(size)
    return size + struct.pack(">I", crc) + raw + struct.pack(">I", zlib.crc32(raw, crc))


def wrapped_log(
    parameters: dict[str, object], sections: Sequence[tuple[int, bytes]], *, version: int = 7
) -> bytes:
    """Return a segment of *sections*: the declared length of each, and its packed bytes."""
    text = json.dumps(parameters).encode()
    halves = SEGMENT_ID & 0xFFFF_FFFF, SEGMENT_ID >> 32
    crc = zlib.crc32(struct.pack(">IIII", version, *halves, len(text)) + text)
    made = struct.pack(">IQH", version, SEGMENT_ID, len(text)) + text + struct.pack(">I", crc)
    for length, packed in sections:
        at = len(made)
        marker = struct.pack(
            ">II", at + 12 + len(packed), zlib.crc32(struct.pack(">III", *halves, at))
        )
        made += marker + struct.pack(">i", length) + packed
    return made


def packed_log(packer: str, contents: Sequence[bytes]) -> bytes:
    """Return a valid segment with *contents* in its sections."""
    pack = PACKERS[packer]
    return wrapped_log(parameters_of(packer), [(len(c), pack(c)) for c in contents])
