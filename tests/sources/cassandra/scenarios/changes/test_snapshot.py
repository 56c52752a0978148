"""N07: rows read from a table while it is written to, and its changes, fold to the table."""

from collections.abc import Iterator, Sequence
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plugins import Operation
from headrace.sources.cassandra.mutation.changes import Cell, Change, Column, Deletion
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.mutation.snapshot import Selected, Snapshot
from headrace.sources.cassandra.mutation.values import Value
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import ColumnSchema

(TABLE,) = parse_schema(
    "CREATE TABLE s.t (k int PRIMARY KEY, v int, w int, tags set<text>, m map<text, int>)"
    " WITH cdc = true AND ID = 4f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a"
).tables.values()
COLUMNS: Final = {column.name: column for column in TABLE.columns}
SELECTED: Final = Selected(TABLE, times_of_elements=True)
NOW_S: Final = 1_000
TAKEN: Final = ("insert", "set", "add", "put")
EVERY: Final = (*TAKEN, "unset", "remove", "take", "replace", "delete")
Write = tuple[str, int, int]
"""A write: its kind, its number, its row."""


def four(number: int) -> bytes:
    """Return an int's bytes."""
    return number.to_bytes(4, "big")


def change(write: Write, at_us: int) -> Change:
    """Return a write with that time, as a log has it."""
    kind, number, row = write
    path = b"%c" % (97 + number % 2)
    operation = Operation.UPDATE
    columns: tuple[Column, ...] = ()
    match kind:
        case "insert":
            operation, columns = Operation.INSERT, (_column("v", at_us, four(number)),)
        case "set":
            columns = (_column("w", at_us, four(number)),)
        case "unset":
            columns = (_column("w", at_us, None),)
        case "add" | "replace":
            deletion = Deletion(at_us - 1, NOW_S) if kind == "replace" else None
            columns = (_column("tags", at_us, b"", path, deletion),)
        case "remove":
            columns = (_column("tags", at_us, None, path),)
        case "put":
            columns = (_column("m", at_us, four(number), path),)
        case "take":
            columns = (_column("m", at_us, None, path),)
        case _:
            operation = Operation.DELETE
    return Change(
        table=TABLE,
        operation=operation,
        timestamp_us=at_us,
        key=(four(row),),
        clustering=(),
        columns=columns,
    )


def _column(
    name: str,
    at_us: int,
    raw: bytes | None,
    path: bytes | None = None,
    deletion: Deletion | None = None,
) -> Column:
    schema = COLUMNS[name]
    return Column(schema, (Cell(schema, at_us, raw, path),), deletion)


def selected(row: int, applied: Sequence[Change]) -> list[bytes | None] | None:
    """Return what a node sends of a row with these changes, in any order; None without a row."""
    own = [each for each in applied if each.key == (four(row),)]
    deleted = max((c.timestamp_us for c in own if c.operation is Operation.DELETE), default=-1)
    inserted = [c.timestamp_us for c in own if c.operation is Operation.INSERT]
    values = [part for column in SELECTED.values for part in _selected(column, deleted, own)]
    if values.count(None) == len(values) and max(inserted, default=-1) <= deleted:
        return None
    return [bytes(8), four(row), *values]


def _selected(
    column: ColumnSchema, deleted: int, own: Sequence[Change]
) -> tuple[bytes | None, bytes | None, None]:
    parts = [part for each in own for part in each.columns if part.schema is column]
    after = max([deleted, *(p.deletion.timestamp_us for p in parts if p.deletion is not None)])
    newest: dict[bytes, Cell] = {}
    for cell in sorted((c for p in parts for c in p.cells), key=lambda cell: cell.timestamp_us):
        newest[cell.path or b""] = cell
    live = {
        path: (cell.raw, cell.timestamp_us.to_bytes(8, "big"))
        for path, cell in sorted(newest.items())
        if cell.raw is not None and cell.timestamp_us > after
    }
    if not live:
        return None, None, None
    if not column.is_complex:
        ((raw, time),) = live.values()
        return raw, time, None
    is_map = column.name == "m"
    elements = [x for path, (raw, _) in live.items() for x in ((path, raw) if is_map else (path,))]
    return _counted(elements, len(live)), _counted([t for _, t in live.values()], len(live)), None


def _counted(parts: Sequence[bytes], count: int) -> bytes:
    return four(count) + b"".join(four(len(part)) + part for part in parts)


def folded(changes: Sequence[Change]) -> dict[Value, dict[str, Value]]:
    """Return the rows with a value, because CQL has no write time for rows without one."""
    fold = Fold(TABLE)
    for each in changes:
        fold.add(each)
    rows = {row["k"]: row for row in fold.rows(NOW_S)}
    return {k: r for k, r in rows.items() if any(r[c.name] is not None for c in SELECTED.values)}


def snapshots(changes: Sequence[Change], places: Sequence[int]) -> Iterator[Change]:
    """Yield each row as it is read after some of the changes were applied to the table."""
    for row, place in enumerate(places):
        found = selected(row, changes[:place])
        if found is not None:
            yield from Snapshot(SELECTED).changes(found, now_s=NOW_S)


def writes(kinds: Sequence[str], most: int) -> st.SearchStrategy[list[Write]]:
    """Return writes of these kinds to two rows."""
    each = st.tuples(st.sampled_from(kinds), st.integers(0, 3), st.integers(0, 1))
    return st.lists(each, max_size=most)


@settings(max_examples=120, deadline=None)
@given(before=writes(TAKEN, 6), live=writes(EVERY, 10), choice=st.data())
def test_each_interleaving(before: list[Write], live: list[Write], choice: st.DataObject) -> None:
    """N07: a consumer that keeps the newest value of each column has the table, in any order.

    Writes are applied in another order than that of their times. Each row is read at some moment
    after the start of the job. What was written before the start is in no log.
    """
    done = [*before, *live]
    times = choice.draw(st.permutations(range(1, len(done) + 1)))
    changes = [change(write, 10 * time) for write, time in zip(done, times, strict=True)]
    places = choice.draw(st.tuples(*[st.integers(len(before), len(done))] * 2))
    came = [*changes[len(before) :], *snapshots(changes, places)]

    order = choice.draw(st.permutations(range(len(came))))

    assert folded(changes) == folded([came[place] for place in order])
