"""Changes printed as JSON have what was written, with values as CQL prints them."""

import json

import pytest
from msgspec.structs import replace

from headrace.sources.cassandra.mutation.change_json import change_document, provenance_document
from headrace.sources.cassandra.mutation.changes import (
    Cell,
    Column,
    Deletion,
    Liveness,
    PartitionUpdate,
    Row,
)
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.logs.sample_log import MUTATIONS, NOW_S, NOW_US, recorded_mutations, sample_mutation
from helpers.recordings.corpora import recording

KEY = {"id": 7}
DOCUMENTS: dict[str, list[dict[str, object]]] = {
    "insert": [
        {
            "table": "shop.users",
            "op": "INSERT",
            "key": KEY,
            "clustering": {"seq": 1},
            "timestamp": NOW_US,
            "columns": {
                "age": {"value": 30, "ts": NOW_US},
                "name": {"value": "Ann", "ts": NOW_US},
            },
        }
    ],
    "replace": [
        {
            "table": "shop.users",
            "op": "UPDATE",
            "key": KEY,
            "clustering": {"seq": 1},
            "timestamp": NOW_US,
            "columns": {
                "name": {"value": None, "ts": NOW_US},
                "tags": {
                    "mode": "replace",
                    "value": ["a", "b"],
                    "deletedAt": NOW_US - 1,
                    "ts": NOW_US,
                    "ttl": 86400,
                    "expires": NOW_S + 86400,
                },
            },
        }
    ],
    "both, 5.x": [
        {
            "table": "shop.users",
            "op": "UPDATE",
            "key": KEY,
            "clustering": {"seq": 1},
            "timestamp": NOW_US,
            "columns": {
                "attrs": {
                    "mode": "replace",
                    "value": {"k": 7},
                    "deletedAt": NOW_US - 1,
                    "ts": NOW_US,
                },
                "tags": {
                    "mode": "merge",
                    "value": ["c"],
                    "removed": [],
                    "cells": [{"key": "c", "ts": NOW_US}],
                },
            },
        }
    ],
    "two ranges": [
        {
            "table": "shop.users",
            "op": "DELETE_RANGE",
            "key": KEY,
            "clustering": None,
            "timestamp": NOW_US,
            "range": {
                "start": {"values": [1], "inclusive": True},
                "end": {"values": [5], "inclusive": False},
            },
        },
        {
            "table": "shop.users",
            "op": "DELETE_RANGE",
            "key": KEY,
            "clustering": None,
            "timestamp": NOW_US + 10,
            "range": {"start": {"values": [5], "inclusive": True}, "end": None},
        },
    ],
    "partition": [
        {
            "table": "shop.users",
            "op": "DELETE_PARTITION",
            "key": KEY,
            "clustering": None,
            "timestamp": NOW_US,
        }
    ],
    "static": [
        {
            "table": "shop.users",
            "op": "UPDATE",
            "key": KEY,
            "clustering": None,
            "timestamp": NOW_US,
            "static": True,
            "columns": {"note": {"value": "hi", "ts": NOW_US}},
        },
        {
            "table": "shop.users",
            "op": "DELETE",
            "key": KEY,
            "clustering": {"seq": 1},
            "timestamp": NOW_US,
        },
    ],
    "fields": [
        {
            "table": "shop.users",
            "op": "UPDATE",
            "key": KEY,
            "clustering": {"seq": 1},
            "timestamp": NOW_US,
            "columns": {
                "addr": {
                    "mode": "merge",
                    "value": {"street": "Main", "no": 9},
                    "removed": [],
                    "cells": [
                        {"key": "street", "value": "Main", "ts": NOW_US},
                        {"key": "no", "value": 9, "ts": NOW_US},
                    ],
                }
            },
        }
    ],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_changes_are_documents(name: str) -> None:
    """Every kind of change has the members that say it."""
    assert DOCUMENTS[name] == [change_document(c) for c in sample_mutation(name).changes()]


@pytest.mark.parametrize("name", MUTATIONS)
def test_order_of_members_is_fixed(name: str) -> None:
    """A document begins with table, operation, key, clustering and timestamp."""
    changes = list(sample_mutation(name).changes())
    assert changes
    for change in changes:
        first = list(change_document(change))[:5]
        assert ["table", "op", "key", "clustering", "timestamp"] == first


(TABLE,) = parse_schema(
    "CREATE TYPE s.u (a int, b text); CREATE TABLE s.t (k int, c int, n int, v text, l list<text>,"
    " m map<int, text>, s set<int>, u u, PRIMARY KEY (k, c))"
    " WITH ID = 00000000-0000-1000-8000-000000000001"
).tables.values()
COLUMNS = {column.name: column for column in TABLE.columns}
ELEMENT = bytes.fromhex("5f8c1a4083a511eeb9620242ac120002")


def cell(
    name: str, raw: bytes | None, path: bytes | None = None, *, ttl_s: int | None = None
) -> Cell:
    """Make a cell of TABLE at 5 µs that expires at 1,000 s if it has a TTL."""
    return Cell(COLUMNS[name], 5, raw, path, ttl_s, None if ttl_s is None else 1_000)


def column_document(
    *cells: Cell, deleted_us: int | None = None, ttl_s: int | None = None
) -> object:
    """Return the document of one column in a row that was inserted at 5 µs."""
    deletion = None if deleted_us is None else Deletion(deleted_us, 1)
    name = cells[0].column.name if cells else "m"
    liveness = Liveness(5, ttl_s, None if ttl_s is None else 1_000)
    row = Row((b"\0\0\0\1",), liveness, None, (Column(COLUMNS[name], cells, deletion),))
    update = PartitionUpdate(TABLE, b"\0\0\0\1", None, None, (row,))
    (change,) = replace(sample_mutation("insert"), updates=(update,)).changes()
    columns = change_document(change)["columns"]
    assert isinstance(columns, dict)
    return columns[name]


ONE, TWO = b"\0\0\0\1", b"\0\0\0\2"
CELLS = {
    "value": (column_document(cell("n", ONE)), {"value": 1, "ts": 5}),
    "null": (column_document(cell("n", None)), {"value": None, "ts": 5}),
    "empty number": (column_document(cell("n", b"")), {"value": None, "ts": 5, "empty": True}),
    "empty text": (column_document(cell("v", b"")), {"value": "", "ts": 5}),
    "the row's TTL": (column_document(cell("n", ONE, ttl_s=9), ttl_s=9), {"value": 1, "ts": 5}),
    "a TTL of its own": (
        column_document(cell("n", ONE, ttl_s=8), ttl_s=9),
        {"value": 1, "ts": 5, "ttl": 8, "expires": 1_000},
    ),
    "none in a row with one": (
        column_document(cell("n", ONE), ttl_s=9),
        {"value": 1, "ts": 5, "ttl": None},
    ),
    "null in a row with one": (column_document(cell("n", None), ttl_s=9), {"value": None, "ts": 5}),
    "cleared": (
        column_document(deleted_us=4),
        {"mode": "replace", "value": None, "deletedAt": 4, "ts": 4},
    ),
    "removed from a map": (
        column_document(cell("m", None, ONE), cell("m", b"x", TWO)),
        {
            "mode": "merge",
            "value": {"2": "x"},
            "removed": [1],
            "cells": [{"key": 1, "ts": 5}, {"key": 2, "value": "x", "ts": 5}],
        },
    ),
    "removed from a set": (
        column_document(cell("s", None, ONE), cell("s", b"", TWO)),
        {
            "mode": "merge",
            "value": [2],
            "removed": [1],
            "cells": [{"key": 1, "ts": 5}, {"key": 2, "ts": 5}],
        },
    ),
    "appended to a list": (
        column_document(cell("l", b"x", ELEMENT)),
        {
            "mode": "merge",
            "value": ["x"],
            "removed": [],
            "cells": [{"key": "5f8c1a40-83a5-11ee-b962-0242ac120002", "value": "x", "ts": 5}],
        },
    ),
    "field set to null": (
        column_document(cell("u", None, b"\0\1"), cell("u", ONE, b"\0\0")),
        {
            "mode": "merge",
            "value": {"a": 1},
            "removed": ["b"],
            "cells": [{"key": "b", "ts": 5}, {"key": "a", "value": 1, "ts": 5}],
        },
    ),
    "field that the schema does not have": (
        column_document(cell("u", b"\xff", b"\0\7")),
        {
            "mode": "merge",
            "value": {"7": "0xff"},
            "removed": [],
            "cells": [{"key": 7, "value": "0xff", "ts": 5}],
        },
    ),
    "field that cannot be": (
        column_document(cell("u", b"\xff", b"\xff\xff")),
        {
            "mode": "merge",
            "value": {"-1": "0xff"},
            "removed": [],
            "cells": [{"key": -1, "value": "0xff", "ts": 5}],
        },
    ),
    "replaced, with TTLs apart": (
        column_document(cell("s", b"", ONE, ttl_s=9), cell("s", b"", TWO), deleted_us=4),
        {
            "mode": "replace",
            "value": [1, 2],
            "deletedAt": 4,
            "removed": [],
            "cells": [{"key": 1, "ts": 5, "ttl": 9, "expires": 1_000}, {"key": 2, "ts": 5}],
        },
    ),
    "replaced, and one removed": (
        column_document(cell("s", b"", ONE), cell("s", None, TWO), deleted_us=4),
        {
            "mode": "replace",
            "value": [1],
            "deletedAt": 4,
            "removed": [2],
            "cells": [{"key": 1, "ts": 5}, {"key": 2, "ts": 5}],
        },
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_columns_say_what_was_written(name: str) -> None:
    """Values, nulls, empties, TTLs, additions and removals can be distinguished."""
    found, expected = CELLS[name]
    assert expected == found


def test_provenance_is_reported() -> None:
    """Where a change was read comes after what it says; copies and node only where known."""
    expected = {"mutation": "0" * 32, "index": 1, "of": 2, "segment": 3, "position": 4}
    alone = provenance_document(mutation_id=bytes(16), index=1, of=2, segment_id=3, position=4)
    reported = provenance_document(
        mutation_id=bytes(16), index=1, of=2, segment_id=3, position=4, copies=2, node="node1"
    )
    assert expected == alone
    assert expected | {"copies": 2, "node": "node1"} == reported


@pytest.mark.parametrize("name", ["4.0-types", "5.0-types", "5.0-compact", "6.0-v9-random"])
def test_recorded_changes_are_json(name: str) -> None:
    """Every change of a recording is JSON that reads back as it was."""
    count = 0
    for mutation in recorded_mutations(recording(name)):
        for change in mutation.changes():
            document = change_document(change)
            assert document == json.loads(json.dumps(document, allow_nan=False))
            count += 1
    assert count > 50
