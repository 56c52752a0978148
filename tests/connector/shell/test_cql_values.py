"""CQL's values look as cqlsh's users know them."""

import datetime as dt
import uuid
from collections import namedtuple
from collections.abc import Mapping
from decimal import Decimal

import pytest
from cassandra.util import Date, Duration, OrderedMapSerializedKey, SortedSet, Time
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.connector.language.rendering import Palette
from headrace.connector.shell.cql_values import Value, cql_style, cql_text

Place = namedtuple("Place", ("city", "No"))  # noqa: PYI024 (as the driver makes them)
ID = uuid.UUID("0cb1d8c4-19a5-4a1c-8c50-c9cde6fd8f0b")


@pytest.mark.parametrize(
    ("value", "expected", "style"),
    [
        (None, "null", "text"),
        ("it's", "it's", "text"),
        (True, "True", "number"),
        (-7, "-7", "number"),
        (0.1, "0.1", "number"),
        (1234567.0, "1.2346e+06", "number"),
        (float("nan"), "NaN", "number"),
        (float("-inf"), "-Infinity", "number"),
        (Decimal("12.50"), "12.50", "number"),
        (b"\xca\xfe", "0xcafe", "partition_key"),
        (ID, str(ID), "text"),
        (dt.datetime(2026, 1, 31, 12, 0, 0, 250_000), "2026-01-31 12:00:00.250000+0000", "number"),  # noqa: DTZ001 (as the driver makes them)
        (Date(0), "1970-01-01", "number"),
        (Time(1), "00:00:00.000000001", "number"),
        (Duration(1, 2, 3), "1mo2d3ns", "number"),
        (["a", None, 1], "['a', null, 1]", "collection"),
        ((1, "it's"), "(1, 'it''s')", "collection"),
        (SortedSet(["b", "a"]), "{'a', 'b'}", "collection"),
        ({"k": b"\x01"}, "{'k': 0x01}", "collection"),
        (Place("Rom", 7), "{city: 'Rom', No: 7}", "collection"),
    ],
)
def test_values(value: Value, expected: str, style: str) -> None:
    """Each type has its form and its colour; strings inside others stand in quotes."""
    assert (expected, style) == (cql_text(value), cql_style(value))
    assert hasattr(Palette(), style)


def test_maps_of_the_driver() -> None:
    """The driver's own map is one."""
    assert "{}" == cql_text(OrderedMapSerializedKey(None, None))
    assert isinstance(OrderedMapSerializedKey(None, None), Mapping)


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.text() | st.binary() | st.floats() | st.integers() | st.datetimes(),
        lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_value(value: Value) -> None:
    """Every value has a text."""
    assert isinstance(cql_text(value), str)
    assert isinstance(cql_style(value), str)
