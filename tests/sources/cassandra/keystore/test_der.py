"""Tags, lengths and values of DER, and what is none."""

import pytest

from headrace.sources.cassandra.keystore.der import INTEGER, OCTET_STRING, SEQUENCE, Der, DerError


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("060a2a864886f70d010c0a", None),  # Cut short.
        ("060a2a864886f70d010c0a01", "1.2.840.113549.1.12.10.1"),
        ("06052b0e03021a", "1.3.14.3.2.26"),
        ("0609608648016503040201", "2.16.840.1.101.3.4.2.1"),
        ("0603883703", "2.999.3"),
    ],
)
def test_object_identifiers(content: str, expected: str | None) -> None:
    """Published ones come out as they are written."""
    cursor = Der(bytes.fromhex(content))
    if expected is None:
        with pytest.raises(DerError):
            cursor.object_id()
    else:
        assert expected == cursor.object_id()
        assert not cursor


@pytest.mark.parametrize(
    ("content", "expected"),
    [("020100", 0), ("0203030d40", 200_000), ("0201ff", -1), ("02020080", 128)],
)
def test_integers(content: str, expected: int) -> None:
    """They have a sign."""
    assert expected == Der(bytes.fromhex(content)).integer()


def test_lengths_of_several_bytes() -> None:
    """From 128 on a length has a length."""
    assert bytes(300) == Der(bytes.fromhex("0482012c") + bytes(300)).next(OCTET_STRING)


@pytest.mark.parametrize(
    "content", ["", "30", "3080", "3085ffffffffff", "3084ffffffff", "0401", "020100", "3002"]
)
def test_what_is_no_sequence(content: str) -> None:
    """Another tag, a length without end or beyond the end, and nothing at all are errors."""
    with pytest.raises(DerError):
        Der(bytes.fromhex(content)).inside(SEQUENCE).next(INTEGER)
