"""Rows that messages fold to, in the form that is compared."""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.connector.replay.comparing.rows import FoldedRows, RowReader, RowState, Span, digest
from headrace.plugins import RecordSchema

AT_S = 100
TEXT = "CREATE TABLE ks.t (...) WITH CLUSTERING ORDER BY (c ASC)"


def field(name: str, kind: object) -> Mapping[str, object]:
    """Return an optional field."""
    return {"name": name, "type": ["null", kind]}


UDT = {
    "type": "record",
    "name": "u",
    "cqlType": "address",
    "fields": [
        {"name": "mode", "type": "string"},
        field("deletedAt", "long"),
        {"name": "fields", "type": {"type": "record", "name": "of", "fields": [field("a", "int")]}},
    ],
}
PAYLOAD = {
    "type": "record",
    "name": "Payload",
    "fields": [
        field("k", "int"),
        field("c", "int"),
        field("v", "string"),
        field("w", "string"),
        field("u", UDT),
    ],
    "partitionKey": ["k"],
    "clustering": ["c"],
    "static": [],
}
VALUE = {"type": "record", "name": "Change", "fields": [{"name": "payload", "type": PAYLOAD}]}
SCHEMA = RecordSchema.of("ks.t", TEXT, key={}, value=VALUE)
Change = dict[str, Any]  # Any: as a message has it.


def change(operation: str, time_us: int, *, expires: int | None = None, **values: object) -> Change:
    """Return a change of the row with the keys 1 and 2."""
    return {
        "operationType": operation,
        "timestampMicros": time_us,
        "isStatic": False,
        "expires": expires,
        "updateFields": list(values),
        "payload": {"k": 1, "c": 2, "v": None, "w": None, "u": None, **values},
        "cells": [],
        "range": None,
    }


def folded(*changes: Change) -> list[RowState]:
    """Return the rows that changes of the table fold to."""
    reader = RowReader({"ks.t": SCHEMA}, AT_S)
    view = reader.view(SCHEMA.schema_id, VALUE, "ks.t")
    assert view is not None
    with FoldedRows(reader) as rows:
        for each in changes:
            rows.add(view, each, b"key")
        return [row for row in rows.rows() if row.shown]


def test_any_order_gives_one_row() -> None:
    """The same changes fold to the same digest in any order, also if they arrive twice."""
    changes = [
        change("INSERT", 10, v="a", w="b"),
        change("UPDATE", 20, v="c"),
        change("UPDATE", 15, w=None),
    ]

    (row,), (other,) = folded(*changes), folded(*reversed(changes * 2))

    assert digest(row) == digest(other)
    assert {"v": True, "w": False} == {name: cell.lives(AT_S) for name, cell in row.cells.items()}
    assert (20, b"key") == (row.newest_us, row.key)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([change("INSERT", 10, v="a"), change("DELETE", 11)], id="the row"),
        pytest.param([change("UPDATE", 10, v="a"), change("UPDATE", 11, v=None)], id="the value"),
        pytest.param([change("DELETE_PARTITION", 11), change("INSERT", 10, v="a")], id="all rows"),
        pytest.param([change("INSERT", 10, expires=AT_S, v="a")], id="its time is over"),
    ],
)
def test_what_is_gone_is_not_shown(changes: list[Change]) -> None:
    """Deleted and expired rows are in no sum."""
    assert [] == folded(*changes)


def test_a_time_of_writing_changes_the_digest() -> None:
    """The same value at another write time gives another digest."""
    (row,), (later,) = folded(change("INSERT", 10, v="a")), folded(change("INSERT", 11, v="a"))

    assert digest(row) != digest(later)


def test_what_counts() -> None:
    """Only values of the compared time are in the sums."""
    (row,) = folded(change("INSERT", 10, v="a"), change("UPDATE", 20, w="b"))

    counted = Span(from_us=5, to_us=20, at_s=AT_S).within(row)
    assert counted is not None
    assert ["v"] == list(counted.cells)
    assert Span(from_us=21, at_s=AT_S).within(row) is None


@pytest.mark.parametrize("times", [(AT_S + 7, AT_S + 3), (AT_S + 3, AT_S + 7), (None, AT_S + 3)])
def test_a_value_of_many_cells_expires_with_its_first(times: tuple[int | None, ...]) -> None:
    """From then on a table would show another value."""
    cells = {
        name: {"removed": False, "timestampMicros": 10, "expires": expires, "value": 1}
        for name, expires in zip("ab", times, strict=True)
    }
    value = {"mode": "MERGE", "deletedAt": None, "fields": cells}

    (row,) = folded(change("UPDATE", 10, u=value))

    assert AT_S + 3 == row.cells["u"].expires_s
