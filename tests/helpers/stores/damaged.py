"""State files that are damaged in ways that SQLite does not allow by itself."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

_SET: Final = "UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?"


def spoil(path: Path, table: str, script: str) -> None:
    """Execute *script* as if *table* allowed NULL and values of any type; then restore that."""
    with contextlib.closing(sqlite3.connect(path)) as raw:
        (sql,) = raw.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    loose = sql.replace("NOT NULL", "").removesuffix("STRICT")
    _execute(path, (_SET, (loose, table)))
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.executescript(script)
    _execute(path, (_SET, (sql, table)))


def _execute(path: Path, statement: tuple[str, tuple[str, str]]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute(*statement)
