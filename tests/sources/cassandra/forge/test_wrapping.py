"""Compressed and encrypted sections hold what was put in, as the codecs themselves say."""

import struct
import zlib
from collections.abc import Callable

import cramjam
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.segments import segment
from headrace.sources.cassandra.forge.wrapping import BLOCK_BYTES_MAX, compression, encryption

CONTENT = b"headrace " * 20_000
OPENERS: dict[str, Callable[[bytes], bytes]] = {
    "LZ4Compressor": lambda raw: bytes(cramjam.lz4.decompress_block(raw)),
    "org.apache.cassandra.io.compress.SnappyCompressor": lambda raw: bytes(
        cramjam.snappy.decompress_raw(raw)
    ),
    "DeflateCompressor": lambda raw: zlib.decompress(raw) if raw else b"",
    "ZstdCompressor": lambda raw: bytes(cramjam.zstd.decompress(raw)),
    "NoopCompressor": bytes,
}


@pytest.mark.parametrize("name", OPENERS)
@pytest.mark.parametrize("content", [CONTENT, b""], ids=["full", "empty"])
def test_compressed(name: str, content: bytes) -> None:
    """Behind the length stands what the codec opens again."""
    wrapped = compression(name).wrap(content)

    assert (len(content),) == struct.unpack(">I", wrapped[:4])
    assert content == OPENERS[name](wrapped[4:])


@pytest.mark.parametrize("content", [CONTENT, b""], ids=["full", "empty"])
def test_encrypted(content: bytes) -> None:
    """Blocks of 64 KiB, each from the same vector, each with its length and LZ4 inside."""
    key, iv = bytes(range(16)), bytes(range(16, 32))
    wrapped = encryption(key, "testing:1", iv).wrap(content)
    opened, at = b"", 4
    while at < len(wrapped):
        size, plain = struct.unpack(">II", wrapped[at : at + 8])
        decryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
        block = decryptor.update(wrapped[at + 8 : at + 8 + size])[:plain]
        part = bytes(cramjam.lz4.decompress_block(block[4:]))
        assert struct.pack(">I", len(part)) == block[:4]
        assert len(part) <= BLOCK_BYTES_MAX
        opened, at = opened + part, at + 8 + size

    assert (len(content),) == struct.unpack(">I", wrapped[:4])
    assert content == opened


def test_positions_are_those_of_what_is_inside() -> None:
    """The header says how it is wrapped; logical positions do not count the lengths."""
    made = segment([[bytes(50)] * 3, []], wrapping=compression("LZ4Compressor"))

    assert b'{"compressionClass":"LZ4Compressor","compressionParameters":null}' in made.content
    assert made.header_bytes + 8 + 3 * 62 == made.section_ends[0] == made.ends[-1]
    assert made.section_ends[0] + 8 == made.section_ends[1]
    assert len(made.content) == made.file_ends[-1] < made.section_ends[-1]


def test_what_there_is_not_is_named() -> None:
    """A compressor that Cassandra does not have, a key of no AES."""
    with pytest.raises(ScriptError, match="there are LZ4Compressor"):
        compression("GzipCompressor")
    with pytest.raises(ScriptError, match="no AES key"):
        encryption(b"short", "a")
