"""Serialised objects of Java: their fields, and nothing that could harm."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.keystore.java_objects import (
    MAGIC,
    DataInput,
    JavaObjectError,
    read_object,
)


def text(value: str) -> bytes:
    """Return a text between its length and its end."""
    return len(value).to_bytes(2, "big") + value.encode()


def class_of(name: str, *fields: bytes, flags: int = 2, parent: bytes = b"\x70") -> bytes:
    """Return a class's description."""
    count = len(fields).to_bytes(2, "big")
    return (
        b"\x72"
        + text(name)
        + bytes(8)
        + bytes((flags,))
        + count
        + b"".join(fields)
        + b"\x78"
        + parent
    )


BYTES = b"[" + text("key") + b"\x74" + text("[B")
NAME = b"L" + text("name") + b"\x74" + text("Ljava/lang/String;")
NUMBER = b"I" + text("count")
ARRAY = b"\x75" + class_of("[B") + (3).to_bytes(4, "big") + b"abc"


def test_fields_of_an_object_and_its_ancestor() -> None:
    """The ancestor's come first; a reference gives again what it points to."""
    parent = class_of("Parent", NUMBER)
    child = class_of("Child", BYTES, NAME, parent=parent)
    stream = MAGIC + b"\x73" + child + (7).to_bytes(4, "big") + ARRAY + b"\x74" + text("AES")

    assert {"count": 7, "key": b"abc", "name": "AES"} == read_object(DataInput(stream))


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        MAGIC,
        b"\xac\xed\x00\x04s",
        MAGIC + b"\x70",
        MAGIC + b"\x71\x00\x7e\x00\x00",
        MAGIC + b"\x73\x70\x74",
        MAGIC + b"\x73" * 100_000,
        MAGIC + b"\x73\x72" + text("A") + bytes(8) + b"\x02\xff\xff" + (b"[" + text("a")) * 9,
        MAGIC + b"\x73" + class_of("External", flags=4),
        MAGIC + b"\x75" + class_of("[I") + b"\x7f\xff\xff\xff",
        MAGIC + b"\x73" + class_of("A", BYTES) + b"\x75" + class_of("[B") + b"\x7f\xff\xff\xffabc",
        MAGIC + b"\x7c",
    ],
)
def test_what_is_refused(stream: bytes) -> None:
    """Cut, endless, too large, or of a kind that a key has no use for."""
    with pytest.raises(JavaObjectError):
        read_object(DataInput(stream))


@given(stream=st.binary(max_size=200))
def test_any_bytes(stream: bytes) -> None:
    """They are an object, or the one error."""
    with suppress(JavaObjectError):
        found = read_object(DataInput(MAGIC + b"\x73" + stream))
        assert found == read_object(DataInput(MAGIC + b"\x73" + stream + b"more"))
