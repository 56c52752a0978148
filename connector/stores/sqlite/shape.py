"""Checks, when a state file is opened, that it has headrace's tables.

Rows are checked when they are read.
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
_COLUMNS: Final = (
    "SELECT t.name, t.strict, c.name, c.type, c.[notnull], c.pk FROM pragma_table_list t "
    "JOIN pragma_table_info(t.name) c WHERE t.schema = 'main' AND t.type = 'table' "
    "AND t.name NOT GLOB 'sqlite_*'"
)

Shape = Mapping[str, Mapping[str, str]]
"""The declaration of each column, by table."""


def check_shape(connection: sqlite3.Connection, place: Path, script: str) -> None:
    """Compare the tables of an open file with *script*.

    Raises:
        StateLostError: it names the table and the column that differ.

    """
    found, expected = _shape_of(connection), _made_by(script)
    for table, columns in expected.items():
        if table not in found:
            raise _spoilt(place, f"table {table}", "no such table", _listed(columns))
        for column, declared in columns.items():
            there = found[table].get(column, "no such column")  # SQLite's words.
            if there != declared:
                raise _spoilt(place, f"table {table}, column {column}", there, declared)


@lru_cache
def _made_by(script: str) -> Shape:
    with contextlib.closing(sqlite3.connect(":memory:")) as made:
        made.executescript(script)
        return _shape_of(made)


def _shape_of(connection: sqlite3.Connection) -> Shape:
    shape: dict[str, dict[str, str]] = {}
    for table, strict, column, kind, not_null, key in connection.execute(_COLUMNS):
        # A key is never NULL in a strict table, whether or not it says NOT NULL.
        words = [kind, *(["NOT NULL"] if not_null or key else []), *(["KEY"] if key else [])]
        shape.setdefault(table, {})[column] = " ".join(words if strict else [*words, "not strict"])
    return shape


def _listed(columns: Sequence[str] | Mapping[str, str]) -> str:
    return f"one with {', '.join(columns)}"


def _spoilt(place: Path, what: str, found: str, expected: str) -> StateLostError:
    return StateLostError(
        f"{what}: found {found}, expected {expected}", place=str(place), hint=RESTORE
    )
