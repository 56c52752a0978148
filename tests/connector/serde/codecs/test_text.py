"""Keys as plain text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.serde.codecs.records import UnfitRecordError
from headrace.connector.serde.codecs.text import TextCodec
from headrace.plugins import Operation, Record, RecordSchema

SCHEMA = RecordSchema.of("ks.t", "CREATE TABLE ks.t (…)", key={}, value={})


def text_of(*values: object) -> str:
    """Return the text of a key of these columns."""
    record = Record(
        key={f"c{index}": value for index, value in enumerate(values)},
        value={},
        operation=Operation.DELETE,
        timestamp_us=0,
        schema=SCHEMA,
    )
    made = TextCodec().key(record)
    assert made is not None
    return made.decode()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("a:b",), "a:b"),
        ((7,), "7"),
        ((True,), "true"),
        ((b"\x00\xff",), "0x00ff"),
        ((float("nan"),), "nan"),
        (("a:b", 7), r"a\:b:7"),
        (("a\\", None), r"a\\:\N"),
        (({"scale": 1, "unscaled": b"\x05"}, ["x"]), r'{"scale"\:1,"unscaled"\:"BQ=="}:["x"]'),
    ],
)
def test_a_key_is_its_columns(values: tuple[object, ...], expected: str) -> None:
    """A key of one column is the column; several columns are joined by colons."""
    assert expected == text_of(*values)


@given(st.lists(st.tuples(st.none() | st.text(), st.text()), min_size=2, max_size=2, unique=True))
def test_other_keys_are_other_strings(pairs: list[tuple[str | None, str]]) -> None:
    """Different rows have different keys."""
    assert text_of(*pairs[0]) != text_of(*pairs[1])


def test_values_are_refused() -> None:
    """The codec is for keys only."""
    record = Record(key=None, value={}, operation=Operation.DELETE, timestamp_us=0, schema=SCHEMA)

    assert TextCodec().key(record) is None
    with pytest.raises(UnfitRecordError):
        TextCodec().value(record)
