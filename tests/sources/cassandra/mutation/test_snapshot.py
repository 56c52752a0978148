"""Rows of a table, as CQL gives them, as changes."""

from headrace.plugins import Operation
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.mutation.snapshot import Selected, Snapshot, identity
from headrace.sources.cassandra.schema.ddl import parse_schema

DDL = """
CREATE TABLE shop.orders (id int, line int, note text, "Odd" int, tags set<text>, m map<text, int>,
    l list<int>, s text static, PRIMARY KEY (id, line)) WITH cdc = true
    AND ID = 4f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a;
"""
(TABLE,) = parse_schema(DDL).tables.values()
NOW_S = 1_000
TOKEN = bytes(8)


def number(value: int, size: int = 4) -> bytes:
    """Return a whole number as CQL has it."""
    return value.to_bytes(size, "big", signed=True)


def collection(*parts: bytes, per: int = 1) -> bytes:
    """Return a collection of elements that have *per* parts."""
    body = b"".join(number(len(part)) + part for part in parts)
    return number(len(parts) // per) + body


def times(*us: int) -> bytes:
    """Return the write times of a collection's elements."""
    return collection(*(number(each, 8) for each in us))


def test_statement() -> None:
    """Values are asked for with their times, keys without; names are quoted."""
    old = Selected(TABLE, times_of_elements=False).statement()
    new = Selected(TABLE, times_of_elements=True).statement()

    assert 'SELECT token("id"), "id", "line", "s", WRITETIME("s"), TTL("s"), "Odd"' in old
    assert 'WRITETIME("tags")' not in old
    assert 'WRITETIME("tags"), TTL("tags")' in new
    assert old.endswith('FROM "shop"."orders" WHERE token("id") > %s AND token("id") <= %s')


def row(line: int | None = 7) -> list[bytes | None]:
    """Return a row of a node of 5.0, in the order of the statement."""
    clustering = None if line is None else number(line)
    values: dict[str, list[bytes | None]] = {
        "s": [b"shared", number(40, 8), None],
        "Odd": [number(5), number(30, 8), number(60)],
        "note": [b"hello", number(50, 8), None],
        "tags": [collection(b"a", b"b"), times(10, 20), None],
        "m": [collection(b"k", number(1), per=2), times(35), None],
        "l": [collection(number(3), number(4)), times(21, 22), None],
    }
    names = [column.name for column in Selected(TABLE, times_of_elements=True).values]
    return [TOKEN, number(1), clustering, *(part for name in names for part in values[name])]


def test_changes() -> None:
    """A row is an INSERT with the times of its values; static columns are a change of their own."""
    snapshot = Snapshot(Selected(TABLE, times_of_elements=True))

    static, first = snapshot.changes(row(7), now_s=NOW_S)
    (second,) = snapshot.changes(row(8), now_s=NOW_S)

    assert (Operation.UPDATE, True, 40) == (static.operation, static.is_static, static.timestamp_us)
    assert (Operation.INSERT, 10, None) == (first.operation, first.timestamp_us, first.ttl_s)
    reported = {
        c.name: [(x.timestamp_us, x.ttl_s, x.expires_s) for x in c.cells] for c in first.columns
    }
    assert [(30, 60, NOW_S + 60)] == reported["Odd"]
    assert [(50, None, None)] == reported["note"]
    assert [10, 20] == [us for us, _, _ in reported["tags"]]
    assert [23, 23] == [us for us, _, _ in reported["l"]]
    assert (number(8),) == second.clustering
    assert identity(first) != identity(second)
    assert identity(first) == identity(
        next(
            iter(
                list(
                    Snapshot(Selected(TABLE, times_of_elements=True)).changes(row(7), now_s=NOW_S)
                )[1:]
            )
        )
    )


def test_fold() -> None:
    """Folded, the changes are the row; twice the same snapshot too, lists included."""
    fold = Fold(TABLE)
    for _ in range(2):
        snapshot = Snapshot(Selected(TABLE, times_of_elements=True))
        for change in snapshot.changes(row(), now_s=NOW_S):
            fold.add(change)

    (found,) = fold.rows(now_s=NOW_S)
    assert "hello" == found["note"]
    assert ["a", "b"] == found["tags"]
    assert {"k": 1} == found["m"]
    assert [3, 4] == found["l"]
    assert "shared" == found["s"]


def test_a_partition_of_static_columns_alone() -> None:
    """A partition without rows gives its static columns, and no row."""
    (static,) = Snapshot(Selected(TABLE, times_of_elements=True)).changes(row(None), now_s=NOW_S)

    assert static.is_static


def test_a_row_that_expires_as_a_whole() -> None:
    """When all values expire, so does the row; when none is there, its time is not known."""
    names = [column.name for column in Selected(TABLE, times_of_elements=True).values]
    empty: list[bytes | None] = [None] * (3 * len(names))
    at = 3 * names.index("note")
    expiring = empty.copy()
    expiring[at : at + 3] = [b"x", number(50, 8), number(60)]

    key = [TOKEN, number(1), number(7)]
    (gone,) = Snapshot(Selected(TABLE, times_of_elements=True)).changes(
        [*key, *expiring], now_s=NOW_S
    )
    (bare,) = Snapshot(Selected(TABLE, times_of_elements=True)).changes([*key, *empty])

    assert (60, NOW_S + 60, 50) == (gone.ttl_s, gone.expires_s, gone.timestamp_us)
    assert (None, 0, ()) == (bare.ttl_s, bare.timestamp_us, bare.columns)
