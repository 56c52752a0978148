"""The rows of the store's two tables as a node of Cassandra has them, by its own rules.

A statement, or a batch of statements to one partition, is applied as a whole if all its conditions
hold: `IF stamp = ?` compares the column, which is null where there is no row.
"""

import re
import struct
import threading
from collections.abc import Sequence
from typing import Final

from helpers.servers.cql_node import (
    BIGINT,
    BLOB,
    BOOLEAN,
    TEXT,
    VOID,
    Bound,
    InvalidError,
    UnansweredError,
    rows,
)

Row = dict[str, bytes | None]

_TYPES: Final = {"partition": TEXT, "name": TEXT, "stamp": BIGINT, "value": BLOB}
_OF_TABLES: Final = re.compile(r"(SELECT .* FROM|UPDATE|DELETE FROM|INSERT INTO) (decided|plain)\b")
_COLUMN: Final = re.compile(r"(\w+) = \?")
_LISTED: Final = re.compile(r"INSERT INTO \w+ \((.*?)\)")
_SELECTED: Final = re.compile(r"SELECT (.*) FROM")
_KEY: Final = ("partition", "name")


class CqlTables:
    """See the module. All calls may come from any thread."""

    def __init__(self) -> None:
        """Start without rows."""
        self.unanswered: list[bool] = []
        """The next writes with conditions that are not answered, and whether they are applied."""
        self._rows: dict[str, dict[tuple[bytes, bytes], Row]] = {"decided": {}, "plain": {}}
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Remove all rows, and answer everything."""
        with self._lock:
            self.unanswered = []
            for found in self._rows.values():
                found.clear()

    def kinds(self, statement: str) -> Sequence[bytes] | None:
        """Return the types of the question marks of a statement; None of another table's."""
        if not _OF_TABLES.match(statement):
            return None
        return [_TYPES[name] for name in _columns(statement)]

    def execute(self, statements: Sequence[Bound]) -> bytes | None:
        """Execute a statement or a batch; return the result. None of statements of another table.

        Raises:
            InvalidError: it is a batch with conditions on several partitions or tables.
            UnansweredError: the test says so.

        """
        if not all(_OF_TABLES.match(statement) for statement, _ in statements):
            return None
        with self._lock:
            if statements[0][0].startswith("SELECT"):
                return self._select(*statements[0])
            if not any(" IF " in statement for statement, _ in statements):
                for each in statements:
                    self._write(*each)
                return VOID
            if len({(_table(text), _key(text, values)[0]) for text, values in statements}) > 1:
                raise InvalidError("Batch with conditions cannot span multiple partitions")
            unanswered = self.unanswered[:1]
            del self.unanswered[:1]
            applied = unanswered != [False] and all(self._holds(*each) for each in statements)
            for each in statements if applied else ():
                self._write(*each)
            if unanswered:
                raise UnansweredError("CAS operation timed out")
            return rows({"[applied]": BOOLEAN}, [struct.pack(">?", applied)])

    def _select(self, statement: str, values: Sequence[bytes | None]) -> bytes:
        (columns,) = _SELECTED.findall(statement)
        names = columns.split(", ")
        asked = dict(zip(_columns(statement), values, strict=True))
        found = [
            row | {"partition": partition, "name": name}
            for (partition, name), row in sorted(self._rows[_table(statement)].items())
        ]
        matching = [row for row in found if all(row[name] == asked[name] for name in asked)]
        kinds = {name: _TYPES[name] for name in names}
        return rows(kinds, *([row.get(name) for name in names] for row in matching))

    def _holds(self, statement: str, values: Sequence[bytes | None]) -> bool:
        """Say whether the condition of a statement holds, if it has one."""
        if " IF " not in statement:
            return True
        assert statement.endswith(" IF stamp = ?"), statement
        row = self._rows[_table(statement)].get(_key(statement, values), {})
        return row.get("stamp") == values[-1]

    def _write(self, statement: str, values: Sequence[bytes | None]) -> None:
        there = self._rows[_table(statement)]
        key = _key(statement, values)
        if statement.startswith("DELETE"):
            there.pop(key, None)
            return
        named = zip(_columns(statement), values, strict=True)
        if statement.startswith("UPDATE"):
            _, _, assigned = statement.partition(" SET ")
            assigned, _, _ = assigned.partition(" WHERE ")
            named = zip(_COLUMN.findall(assigned), values, strict=False)
        row: Row = there.get(key, {}) | {name: v for name, v in named if name not in _KEY}
        if statement.startswith("INSERT") or any(v is not None for v in row.values()):
            there[key] = row
        else:
            there.pop(key, None)  # An UPDATE to null makes no row.


def _table(statement: str) -> str:
    found = _OF_TABLES.match(statement)
    assert found, statement
    return found[2]


def _columns(statement: str) -> Sequence[str]:
    """Return the columns of the question marks, in order."""
    listed = _LISTED.match(statement)
    return listed[1].split(", ") if listed else _COLUMN.findall(statement)


def _key(statement: str, values: Sequence[bytes | None]) -> tuple[bytes, bytes]:
    columns = _columns(statement)
    partition, name = (values[columns.index(each)] for each in _KEY)
    assert partition is not None
    assert name is not None
    return partition, name
