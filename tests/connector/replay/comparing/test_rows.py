"""Rows that messages fold to, in the form that is compared."""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.connector.replay.comparing.rows import FoldedRows, RowReader, RowState, Span, digest
from helpers.histories.whole_changes import schema_of, whole

AT_S = 100
DDL = """
CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TYPE ks.address (a int, b int);
CREATE TABLE ks.t (k int, c int, v text, w text, u address, PRIMARY KEY (k, c))
WITH ID = 00000000-0000-1000-8000-000000000004 AND cdc = true;
"""
SCHEMA = schema_of(DDL)
Change = Mapping[str, Any]  # Any: as a message has it.


def change(operation: str, time_us: int, *, expires: int | None = None, **values: object) -> Change:
    """Return a change of the row with the keys 1 and 2."""
    return whole(operation, time_us, {"k": 1, "c": 2}, values, expires=expires)


def folded(*changes: Change) -> list[RowState]:
    """Return the rows that changes of the table fold to."""
    reader = RowReader({"ks.t": SCHEMA}, AT_S)
    view = reader.view(SCHEMA.schema_id, SCHEMA.value, "ks.t")
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
        name: {"removed": False, "timestampMicros": 10, "ttl": None, "expires": expires, "value": 1}
        for name, expires in zip("ab", times, strict=True)
    }
    value = {"mode": "merge", "deletedAt": None, "fields": cells}

    (row,) = folded(change("UPDATE", 10, u=value))

    assert AT_S + 3 == row.cells["u"].expires_s
