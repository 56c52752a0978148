"""Names, headers and index files of segments."""

import pytest

from headrace.plugins import HeadraceError
from headrace.sources.cassandra.commitlog.segment import (
    Compression,
    Descriptor,
    Encryption,
    Index,
    header_length,
    index_name,
    parse_descriptor,
    parse_index,
    parse_name,
)
from headrace.sources.cassandra.errors import (
    CorruptSegmentError,
    SegmentError,
    UnsupportedSegmentError,
)
from headrace.sources.cassandra.forge.segments import SEGMENT_ID
from helpers.logs.forged import header

ENCRYPTED = (
    rb'{"encCipher":"AES\/CBC\/PKCS5Padding","encIV":"00112233445566778899aabbccddeeff",'
    rb'"encKeyAlias":"testing:1"}'
)
LZ4 = Compression("LZ4Compressor")
LOCKED = Encryption("testing:1", bytes.fromhex("00112233445566778899aabbccddeeff"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CommitLog-7-1700000000000.log", (7, 1_700_000_000_000)),
        ("CommitLog-9-1.log", (9, 1)),
        ("CommitLog-12345.log", None),
        ("CommitLog-7-1_cdc.idx", None),
        ("CommitLog-7-1.log.gz", None),
        ("xCommitLog-7-1.log", None),
        ("CommitLog-7-.log", None),
    ],
)
def test_a_name_holds_version_and_id(name: str, expected: tuple[int, int] | None) -> None:
    """Any other name is not a segment's."""
    assert expected == parse_name(name)


def test_the_index_lies_beside_its_segment() -> None:
    """Its name is made from the segment's."""
    assert index_name("CommitLog-7-1.log") == "CommitLog-7-1_cdc.idx"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"77", Index(77, completed=False)),
        (b"77\nCOMPLETED", Index(77, completed=True)),
        (b"77\nCOMPLETED\n", Index(77, completed=True)),
        (b"", None),
        (b"77\nCOMPLETE", None),
        (b"77 ", None),
        (b"\xff\xfe", None),
    ],
)
def test_only_a_whole_index_is_read(content: bytes, expected: Index | None) -> None:
    """Anything else means: look again."""
    assert expected == parse_index(content)


@pytest.mark.parametrize(
    ("version", "known"),
    [
        (7, "000000070000018bcfe5680000027b7d52ecfd5a"),
        (8, "000000080000018bcfe5680000027b7d06643ec7"),
        (9, "000000090000018bcfe5680000027b7dbf9fe52f"),
    ],
)
def test_published_headers_are_read(version: int, known: str) -> None:
    """The version decides about the messaging version of the mutations."""
    found = parse_descriptor(bytes.fromhex(known), place="x")

    assert Descriptor(version, SEGMENT_ID, 20) == found
    assert version + 5 == found.messaging
    assert bytes.fromhex(known) == header(version)


@pytest.mark.parametrize(
    ("raw", "error", "expected"),
    [
        (header(6), UnsupportedSegmentError, "commit log version 6; this release reads 7, 8 and 9"),
        (header(10), UnsupportedSegmentError, "commit log version 10"),
        (
            header(parameters=ENCRYPTED.replace(b"CBC", b"GCM")),
            UnsupportedSegmentError,
            "a segment encrypted by 'AES/GCM/PKCS5Padding'",
        ),
        (
            header(parameters=ENCRYPTED.replace(b"0011", b"001")),
            CorruptSegmentError,
            "encIV: expected 32 hexadecimal digits",
        ),
        (
            header(parameters=b'{"encCipher":1,"encKeyAlias":"a"}'),
            CorruptSegmentError,
            "encCipher: expected a text",
        ),
        (
            header(parameters=b'{"compressionClass":null}'),
            CorruptSegmentError,
            "compressionClass: expected a text",
        ),
        (header(flip=1), CorruptSegmentError, "header checksum: expected 52ecfd5a, found 52ecfd5b"),
        (header(parameters=b"{"), CorruptSegmentError, "not JSON"),
        (header(parameters=b"[]"), CorruptSegmentError, "not a JSON object"),
        (header(parameters=b"\xff"), CorruptSegmentError, "not JSON"),
        (header(parameters=b"[" * 60_000), CorruptSegmentError, "not JSON"),
    ],
    ids=[
        *("3.x", "future", "cipher", "IV", "no cipher", "no compressor"),
        *("checksum", "cut JSON", "list", "no text", "deep"),
    ],
)
def test_what_cannot_be_read_is_named(
    raw: bytes, error: type[HeadraceError], expected: str
) -> None:
    """Place, what was found, and a hint."""
    with pytest.raises(error, match=expected) as caught:
        parse_descriptor(raw + bytes(50), place="node1: CommitLog")

    assert caught.value.place.startswith("node1: CommitLog")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (b'{"compressionClass":"LZ4Compressor","compressionParameters":null}', LZ4),
        (ENCRYPTED, LOCKED),
        (b'{"compressionClass":"LZ4Compressor",' + ENCRYPTED[1:], LOCKED),
        (b'{"encKeyAlias":"testing:1"}', None),
    ],
    ids=["compressed", "encrypted", "both", "half"],
)
def test_the_header_tells_the_wrapping(parameters: bytes, expected: object) -> None:
    """Encryption needs a cipher and a key's name, and then wins over compression."""
    assert expected == parse_descriptor(header(parameters=parameters), place="x").wrapping


def test_unknown_parameters_are_ignored() -> None:
    """A later release may write more of them."""
    raw = header(parameters=b'{"new":[1],"compressionParameters":null}')

    assert len(raw) == parse_descriptor(raw, place="x").header_bytes == header_length(raw)


@pytest.mark.parametrize("raw", [header(), header(8, parameters=b'{"x":"\\/"}')])
def test_damage_to_a_header_is_found(raw: bytes) -> None:
    """Every truncation and every flipped bit is a named error."""
    damaged = [raw[:length] for length in range(len(raw))]
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))

    for each in damaged:
        with pytest.raises(SegmentError):
            parse_descriptor(each, place="x")
