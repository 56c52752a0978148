"""Wraps a section's content: unchanged, in a compressed block, or in encrypted blocks."""

import os
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import cramjam
import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from headrace.sources.cassandra.errors import ScriptError

BLOCK_BYTES_MAX: Final = 64 * 1024  # The uncompressed bytes in one encrypted block.
_CIPHER: Final = "AES/CBC/PKCS5Padding"
_IV_BYTES: Final = 16


class Wrapping(msgspec.Struct, frozen=True):
    """Converts a section's content to its form in the file."""

    parameters: Mapping[str, object] = msgspec.field(default_factory=dict)
    wrap: Callable[[bytes], bytes] = bytes

    @property
    def plain(self) -> bool:
        """Whether the file has the content unchanged."""
        return not self.parameters


PLAIN: Final = Wrapping()


def compression(name: str, options: Mapping[str, str] | None = None) -> Wrapping:
    """Return the wrapping of a compressor, by its class name, with or without package.

    Raises:
        ScriptError: Cassandra does not have the compressor.

    """
    compress = _COMPRESSORS.get(name.rpartition(".")[2])
    if compress is None:
        known = ", ".join(_COMPRESSORS)
        raise ScriptError(f"{name!r} compresses no commit log", hint=f"there are {known}")

    def wrap(content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + compress(content)

    return Wrapping({"compressionClass": name, "compressionParameters": options or None}, wrap)


def encryption(key: bytes, alias: str, iv: bytes | None = None) -> Wrapping:
    """Return the wrapping of AES in CBC mode with LZ4 inside; *iv* is random by default."""
    vector = os.urandom(_IV_BYTES) if iv is None else iv
    try:
        cipher = Cipher(algorithms.AES(key), modes.CBC(vector))
    except ValueError as error:
        raise ScriptError(f"no AES key and vector: {error}") from error

    def block(content: bytes) -> bytes:
        plain = struct.pack(">I", len(content)) + _lz4(content)
        padder = PKCS7(algorithms.AES.block_size).padder()
        encryptor = cipher.encryptor()  # Every block starts from the same vector.
        padded = padder.update(plain) + padder.finalize()
        sealed = encryptor.update(padded) + encryptor.finalize()
        return struct.pack(">II", len(sealed), len(plain)) + sealed

    def wrap(content: bytes) -> bytes:
        starts = range(0, len(content), BLOCK_BYTES_MAX)
        blocks = b"".join(block(content[at : at + BLOCK_BYTES_MAX]) for at in starts)
        return struct.pack(">I", len(content)) + blocks

    parameters = {"encCipher": _CIPHER, "encIV": vector.hex(), "encKeyAlias": alias}
    return Wrapping(parameters, wrap)


def _lz4(content: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(content, store_size=True))


def _snappy(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(content))


def _deflate(content: bytes) -> bytes:
    return zlib.compress(content) if content else b""


def _zstd(content: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(content))


_COMPRESSORS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "LZ4Compressor": _lz4,
    "SnappyCompressor": _snappy,
    "DeflateCompressor": _deflate,
    "ZstdCompressor": _zstd,
    "NoopCompressor": bytes,
}
