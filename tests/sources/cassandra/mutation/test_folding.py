"""Changes fold into rows by Cassandra's rules, in any order."""

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from headrace.plugins.records.record import Operation
from headrace.sources.cassandra.mutation.changes import (
    Bound,
    Cell,
    Change,
    Column,
    Deletion,
    MutationDecoder,
    RangeDeletion,
)
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.mutation.values import Value
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import TableSchema
from helpers.cost import calls_of
from helpers.logs.sample_log import NOW_S, recorded_mutations
from helpers.logs.wide import wide_mutation, wide_schema
from helpers.recordings.corpora import recording
from helpers.settings.seeds import is_soak

(TABLE,) = parse_schema(
    "CREATE TYPE s.u (a int, b text); CREATE TABLE s.t (k int, c int, d int, st text static, v int,"
    " w text, l list<int>, m map<int, text>, s set<int>, u u, PRIMARY KEY (k, c, d))"
    " WITH CLUSTERING ORDER BY (c ASC, d DESC) AND ID = 00000000-0000-1000-8000-000000000001"
).tables.values()
COLUMNS = {column.name: column for column in TABLE.columns}
ELEMENTS = [bytes.fromhex(f"{n:08x}83a511eeb9620242ac120002") for n in range(3)]


def four(number: int) -> bytes:
    """Return an int's bytes."""
    return number.to_bytes(4, "big", signed=True)


def cell(  # noqa: PLR0913 (what a cell has)
    name: str,
    raw: bytes | None,
    at_us: int,
    *,
    path: bytes | None = None,
    ttl_s: int | None = None,
    local_s: int | None = None,
) -> Cell:
    """Make a cell of TABLE."""
    return Cell(COLUMNS[name], at_us, raw, path, ttl_s, local_s)


def written(*cells: Cell, c: int = 1, d: int = 1, deleted_us: int | None = None) -> Change:
    """Make an UPDATE of a row, with the complex deletion of the cells' column if there is one."""
    deletion = None if deleted_us is None else Deletion(deleted_us, 1)
    names = dict.fromkeys(cell.column.name for cell in cells)
    columns = [
        Column(COLUMNS[name], tuple(x for x in cells if x.column.name == name), deletion)
        for name in names
    ]
    return made(Operation.UPDATE, 0, columns=tuple(columns), clustering=(four(c), four(d)))


def made(operation: Operation, at_us: int, **members: Any) -> Change:  # noqa: ANN401 (of Change)
    """Make a change of the partition 7."""
    return Change(table=TABLE, operation=operation, timestamp_us=at_us, key=(four(7),), **members)


def inserted(at_us: int, *, c: int = 1, d: int = 1, **life: int) -> Change:
    """Make an INSERT of a key without columns."""
    return made(Operation.INSERT, at_us, clustering=(four(c), four(d)), **life)


def deleted(at_us: int, start: Bound | None, end: Bound | None) -> Change:
    """Make a range deletion."""
    given = RangeDeletion(start, end, Deletion(at_us, 1))
    return made(Operation.DELETE_RANGE, at_us, range=given)


def rows(changes: Iterable[Change], now_s: int = 0) -> list[dict[str, Value]]:
    """Return the rows that *changes* leave, without columns that are null."""
    fold = Fold(TABLE)
    for change in changes:
        fold.add(change)
    return [{n: v for n, v in row.items() if v is not None} for row in fold.rows(now_s)]


ROW: dict[str, Value] = {"k": 7, "c": 1, "d": 1}
CASES: dict[str, tuple[Sequence[Change], list[dict[str, Value]]]] = {
    "a key alone is a row": ([inserted(5)], [ROW]),
    "cells alone are a row": ([written(cell("v", four(3), 5))], [ROW | {"v": 3}]),
    "a tombstone alone is none": ([written(cell("v", None, 5))], []),
    "the newer write": (
        [written(cell("v", four(3), 5)), written(cell("v", four(2), 6))],
        [ROW | {"v": 2}],
    ),
    "a tie goes to the larger bytes": (
        [written(cell("v", four(3), 5)), written(cell("v", four(2), 5))],
        [ROW | {"v": 3}],
    ),
    "a tie goes to the tombstone": (
        [written(cell("v", four(3), 5)), written(cell("v", None, 5)), inserted(1)],
        [ROW],
    ),
    "a tie goes to what expires": (
        [
            written(cell("v", four(3), 5)),
            written(cell("v", four(2), 5, ttl_s=9, local_s=9)),
        ],
        [ROW | {"v": 2}],
    ),
    "what expires is gone then": (
        [inserted(5, ttl_s=9, expires_s=0), written(cell("v", four(3), 5, ttl_s=9, local_s=0))],
        [],
    ),
    "a deletion at the same time": (
        [made(Operation.DELETE, 5, clustering=(four(1), four(1))), inserted(5)],
        [],
    ),
    "what is newer than a deletion": (
        [
            made(Operation.DELETE, 5, clustering=(four(1), four(1))),
            inserted(4),
            written(cell("v", four(3), 6), cell("w", b"x", 5)),
        ],
        [ROW | {"v": 3}],
    ),
    "a partition's deletion": (
        [made(Operation.DELETE_PARTITION, 5), inserted(5), inserted(6, c=2)],
        [ROW | {"c": 2}],
    ),
    "an inclusive prefix": (
        [inserted(1), inserted(1, c=2), deleted(5, Bound((four(2),), inclusive=True), None)],
        [ROW],
    ),
    "an exclusive prefix": (
        [inserted(1), inserted(1, c=2), deleted(5, Bound((four(1),), inclusive=False), None)],
        [ROW],
    ),
    "a descending column": (
        [
            *(inserted(1, d=d) for d in (1, 2, 3)),
            deleted(
                5,
                Bound((four(1), four(3)), inclusive=False),
                Bound((four(1), four(1)), inclusive=False),
            ),
        ],
        [ROW | {"d": 3}, ROW],
    ),
    "a static row alone": (
        [
            made(
                Operation.UPDATE,
                5,
                is_static=True,
                columns=(Column(COLUMNS["st"], (cell("st", b"x", 5),)),),
            )
        ],
        [{"k": 7, "st": "x"}],
    ),
    "a replaced map": (
        [
            written(cell("m", b"old", 3, path=four(1))),
            written(cell("m", b"new", 5, path=four(2)), deleted_us=4),
        ],
        [ROW | {"m": {"2": "new"}}],
    ),
    "a merged set": (
        [
            written(cell("s", b"", 3, path=four(2)), cell("s", b"", 3, path=four(-1))),
            written(cell("s", None, 5, path=four(2)), cell("s", b"", 5, path=four(1))),
        ],
        [ROW | {"s": [-1, 1]}],
    ),
    "a list is in the order of its ids": (
        [
            written(cell("l", four(1), 5, path=ELEMENTS[1])),
            written(cell("l", four(2), 6, path=ELEMENTS[2])),
            written(cell("l", four(0), 7, path=ELEMENTS[0])),
        ],
        [ROW | {"l": [0, 1, 2]}],
    ),
    "fields of a UDT": (
        [
            written(cell("u", four(1), 5, path=b"\0\0"), cell("u", b"x", 5, path=b"\0\1")),
            written(cell("u", None, 6, path=b"\0\0")),
        ],
        [ROW | {"u": {"a": None, "b": "x"}}],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_changes_fold(name: str) -> None:
    """What is left follows Cassandra's rules, in the order given and in the opposite one."""
    changes, expected = CASES[name]
    assert expected == rows(changes)
    assert expected == rows(reversed(changes))
    assert expected == rows([*changes, *changes])


def folded(changes: Iterable[Change]) -> dict[str, list[str]]:
    """Return the rows of each table, sorted."""
    folds: dict[str, Fold] = {}
    for change in changes:
        folds.setdefault(change.table.qualified, Fold(change.table)).add(change)
    return {name: sorted(map(repr, fold.rows(NOW_S))) for name, fold in folds.items()}


@pytest.mark.parametrize("name", ["4.0-random", "5.0-ops", "6.0-v9-random"])
def test_order_does_not_matter(name: str) -> None:
    """Recorded changes leave the same rows, folded in any order (I4)."""
    changes = [
        change
        for mutation in recorded_mutations(recording(name))
        for change in mutation.changes()
        if not change.table.is_counter
    ]
    expected = folded(changes)
    assert sum(map(len, expected.values())) > 50
    for seed in range(3):
        random.Random(seed).shuffle(changes)  # noqa: S311 (not for secrets)
        assert expected == folded(changes)


# What the nodes had in their tables when they were up again, as was noted with the recordings.
ROWS_AFTER_REPLAY = {
    "4.0-crash": {"a_cobalt_events": 4374, "b_basalt_umbra": 2784, "c_jade_walnut": 1209},
    "4.1-crash": {"a_moss_ledger": 4246, "b_hazel_ledger": 2775, "c_ember_sensor": 1227},
    "5.0-crash": {"a_jade_meadow": 1958, "b_kelp_session": 1499, "c_amber_umbra": 584},
    "5.0-lz4-crash": {"a_onyx_session": 1246, "b_dune_events": 1002, "c_gale_patient": 341},
    "5.0-v8-direct-crash": {"a_ember_wallet": 2567, "b_ember_orchid": 1672, "c_frost_saddle": 706},
}


@pytest.mark.soak
@pytest.mark.parametrize("name", ROWS_AFTER_REPLAY if is_soak() else ("4.0-crash", "5.0-lz4-crash"))
def test_a_killed_nodes_log_folds_into_its_rows(name: str) -> None:
    """What a node logged before it was killed is what its tables had when it was up again."""
    folder = recording(name)
    folds: dict[str, Fold] = {}
    for mutation in recorded_mutations(folder, folder / "killed" / "cdc_raw"):
        for change in mutation.changes():
            folds.setdefault(change.table.name, Fold(change.table)).add(change)
    found = {table: sum(1 for _row in fold.rows(NOW_S)) for table, fold in folds.items()}
    assert ROWS_AFTER_REPLAY[name] == found


def work(columns: int, updates: int) -> int:
    """Return how many calls it takes to decode and fold *updates* of a row of *columns*."""
    schema = wide_schema(columns)
    decoder = MutationDecoder(Catalogue(schema))
    (table,) = schema.tables.values()
    mutations = [wide_mutation(columns, number) for number in range(updates)]
    return calls_of(lambda: fold_all(decoder, table, mutations))


def fold_all(decoder: MutationDecoder, table: TableSchema, mutations: Sequence[bytes]) -> None:
    """Decode *mutations*, fold their changes and read the rows."""
    fold = Fold(table)
    for raw in mutations:
        for change in decoder.decode(raw, messaging=12, segment_id=1, position=1).changes():
            fold.add(change)
    (row,) = fold.rows(NOW_S)
    assert len(row) == len(table.columns)


def test_wide_rows_fold_in_linear_time() -> None:
    """Twice the columns, or twice the updates, are about twice the work, at 200 columns too."""
    once = work(100, 20)
    assert work(200, 20) < 2.2 * once
    assert work(400, 20) < 4.4 * once
    assert work(100, 40) < 2.2 * once


def test_a_wide_row_has_what_was_written() -> None:
    """The newest of many updates of 200 columns is what a row of them has."""
    schema = wide_schema(200)
    (table,) = schema.tables.values()
    decoder = MutationDecoder(Catalogue(schema))
    fold = Fold(table)
    for number in (1, 3, 2):
        raw = wide_mutation(200, number)
        for change in decoder.decode(raw, messaging=12, segment_id=1, position=1).changes():
            fold.add(change)
    (row,) = fold.rows(NOW_S)
    assert {f"c{i:03}": 3_000 + i for i in range(200)} | {"k": 7} == row
