"""Whether a state file has the tables and the kinds of values that headrace gave it.

Looked at whenever the file is opened: SQLite itself keeps the kinds as long as nobody but headrace
wrote it, so what differs was spoilt, and everything read from there would be a guess.
"""

import contextlib
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from headrace.connector.stores import StateLostError
from headrace.connector.stores.stored import restore_hint

RESTORE: Final = restore_hint("state file")
# It may have a row for each of many losses, which are looked at one by one when they are read.
_NOT_LOOKED_THROUGH: Final = "quarantine"
_COLUMNS: Final = (
    "SELECT t.name, t.strict, c.name, c.type, c.[notnull], c.pk FROM pragma_table_list t "
    "JOIN pragma_table_info(t.name) c WHERE t.schema = 'main' AND t.type = 'table' "
    "AND t.name NOT GLOB 'sqlite_*'"
)

Shape = Mapping[str, Mapping[str, str]]
"""How each column of each table is declared."""


def check_shape(connection: sqlite3.Connection, place: Path, script: str) -> None:
    """Hold the tables of an open file, and the kinds of all values, against *script*.

    Raises:
        StateLostError: with the table and the column that differ.

    """
    found, expected = _shape_of(connection), _made_by(script)
    for table, columns in expected.items():
        if table not in found:
            raise _spoilt(place, f"table {table}", "no such table", _listed(columns))
        for column, declared in columns.items():
            there = found[table].get(column, "no such column")
            if there != declared:
                raise _spoilt(place, f"table {table}, column {column}", there, declared)
    for table, columns in expected.items():
        if table != _NOT_LOOKED_THROUGH:
            _check_values(connection, place, table, columns)


def _check_values(
    connection: sqlite3.Connection, place: Path, table: str, columns: Mapping[str, str]
) -> None:
    """Look for a value of another kind than its column's."""
    kinds = {
        column: [declared.partition(" ")[0].lower(), *(() if "NOT NULL" in declared else ["null"])]
        for column, declared in columns.items()
    }
    fits = " AND ".join(
        f"typeof({column}) IN ({', '.join(map(repr, allowed))})"
        for column, allowed in kinds.items()
    )
    shown = ", ".join(f"typeof({column})" for column in columns)
    keys = ", ".join(column for column, declared in columns.items() if "KEY" in declared)
    row = connection.execute(
        f"SELECT {shown}, {keys} FROM {table} WHERE NOT ({fits}) LIMIT 1"  # noqa: S608 (names of ours)
    ).fetchone()
    if row is None:
        return
    there = dict(zip(columns, row, strict=False))
    column = next(each for each in columns if there[each] not in kinds[each])
    key = ", ".join(_shown(each) for each in row[len(columns) :])
    what = f"table {table}, row {key}, column {column}"
    raise _spoilt(place, what, there[column], " or ".join(kinds[column]))


@lru_cache
def _made_by(script: str) -> Shape:
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        made.executescript(script)
        return _shape_of(made)


def _shape_of(connection: sqlite3.Connection) -> Shape:
    shape: dict[str, dict[str, str]] = {}
    for table, strict, column, kind, not_null, key in connection.execute(_COLUMNS):
        # A key is never NULL in a strict table, whether or not that is written.
        words = [kind, *(["NOT NULL"] if not_null or key else []), *(["KEY"] if key else [])]
        shape.setdefault(table, {})[column] = " ".join(words if strict else [*words, "not strict"])
    return shape


def _listed(columns: Sequence[str] | Mapping[str, str]) -> str:
    return f"one with {', '.join(columns)}"


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _spoilt(place: Path, what: str, found: str, expected: str) -> StateLostError:
    return StateLostError(
        f"{what}: found {found}, expected {expected}", place=str(place), hint=RESTORE
    )
