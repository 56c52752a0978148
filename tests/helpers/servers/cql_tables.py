"""The rows of our tables as a node of Cassandra has them, by its own rules.

A statement, or a batch of statements to one partition, is applied as a whole if all its conditions
hold: `IF stamp = ?` compares the column, which is null where there is no row. A write with a time
of its own loses to what was written with a later one. Rows live for ever.
"""

import re
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import eq, ge, le, lt
from typing import Final, NamedTuple
from zlib import crc32

from helpers.servers.cql_node import (
    BIGINT,
    BLOB,
    BOOLEAN,
    INT,
    TEXT,
    TIMESTAMP,
    VOID,
    Asked,
    Bound,
    InvalidError,
    UnansweredError,
    rows,
)

Row = dict[str, bytes | None]
Values = tuple[bytes, ...]


class _Table(NamedTuple):
    """The columns of a table's partition key, its clustering columns, and all types."""

    partition: Sequence[str]
    clustering: Sequence[str]
    types: Mapping[str, bytes]


_ROW: Final = {"partition": TEXT, "name": TEXT, "value": BLOB}
_NAME: Final = {"key": BLOB, "row": BLOB}
_TABLES: Final = {
    "decided": _Table(["partition"], ["name"], {**_ROW, "stamp": BIGINT}),
    "plain": _Table(["partition"], ["name"], _ROW),
    "history_changes": _Table(
        ["history", "window", "bucket"],
        ["arrival", "attempt"],
        {
            "history": TEXT,
            **dict.fromkeys(("window", "arrived"), TIMESTAMP),
            **dict.fromkeys(("arrival", "attempt", "written_us"), BIGINT),
            **dict.fromkeys(("bucket", "schema_number"), INT),
            **dict.fromkeys(("operation", "document"), TEXT),
            **dict.fromkeys((*_NAME, "change", "before"), BLOB),
        },
    ),
    "history_states": _Table(
        ["states", "key"], ["row"], {"states": TEXT, **_NAME, "expires": BIGINT, "state": BLOB}
    ),
    "history_expiries": _Table(
        ["states", "day"],
        ["at_s", "key", "row"],
        {"states": TEXT, "day": INT, "at_s": BIGINT, **_NAME},
    ),
}
_USING: Final = {"TTL": INT, "TIMESTAMP": BIGINT, "token": BIGINT}
_LIST: Final = b"\x00\x20"
_TOKEN: Final = re.compile(r"token\(\w+, \w+\)")
_OF_TABLES: Final = re.compile(
    rf"(SELECT .* FROM|UPDATE|DELETE FROM|INSERT INTO) ({'|'.join(_TABLES)})\b"
)
_MARK: Final = re.compile(r"(\w+)(?: (=|>=|<=|<|>|IN))? \?")
_LISTED: Final = re.compile(r"INSERT INTO \w+ \((.*?)\)")
_SELECTED: Final = re.compile(r"SELECT (DISTINCT )?(.*) FROM")
_SIGNS: Final[Mapping[str, Callable[[bytes, bytes], bool]]] = {
    "=": eq,
    ">=": ge,
    "<=": le,
    "<": lt,
}
_STAMP: Final = "stamp of the write"


class CqlTables:
    """See the module. All calls may come from any thread."""

    def __init__(self) -> None:
        """Start without rows."""
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Remove all rows, and answer everything."""
        with self._lock:
            self.unanswered: list[bool] = []
            """The next writes with conditions that are not answered, and if they are applied."""
            self.refused_at = 0
            """Which of the next requests is refused; 0: none."""
            self.is_away = False
            """Whether all are refused from that one on."""
            self.refuses = ""
            """What a statement has that is refused; nothing: none is."""
            self.asked: Counter[str] = Counter()
            """How many requests named a table first, by its name."""
            self.batch_max = 0
            """How many statements without conditions came at once, at most."""
            self.ttls: set[int] = set()
            """How long what was written is to live, in seconds."""
            self._rows: dict[str, dict[Values, dict[Values, Row]]] = {n: {} for n in _TABLES}

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        with self._lock:
            return sum(map(len, self._rows[table].values()))

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table, those of each partition in their order."""
        with self._lock:
            return [row for part in self._rows[table].values() for _, row in sorted(part.items())]

    def kinds(self, statement: str) -> Sequence[bytes] | None:
        """Return the types of the question marks of a statement; None of another table's."""
        if not _OF_TABLES.match(statement):
            return None
        types = {**_table(statement).types, **_USING}
        lists = {name for name, sign in _MARK.findall(statement) if sign == "IN"}
        names = _names(statement)
        return [_LIST + types[n] if n in lists else types[n] for n in names]

    def execute(self, statements: Sequence[Bound], page: Asked) -> bytes | None:
        """Execute a statement or a batch; return the result. None of statements of another table.

        Raises:
            InvalidError: it is a batch with conditions on several partitions or tables.
            UnansweredError: the test says so.

        """
        if not all(_OF_TABLES.match(statement) for statement, _ in statements):
            return None
        with self._lock:
            self._refuse()
            self.asked[_of(statements[0][0])] += 1
            if self.refuses and self.refuses in statements[0][0]:
                raise InvalidError("the node refuses it")
            if statements[0][0].startswith("SELECT"):
                return self._select(*statements[0], page)
            if not any(" IF " in statement for statement, _ in statements):
                self.batch_max = max(self.batch_max, len(statements))
                for each in statements:
                    self._write(*each)
                return VOID
            if len({(_of(text), _keys(text, values)[0]) for text, values in statements}) > 1:
                raise InvalidError("Batch with conditions cannot span multiple partitions")
            unanswered = self.unanswered[:1]
            del self.unanswered[:1]
            applied = unanswered != [False] and all(self._holds(*each) for each in statements)
            for each in statements if applied else ():
                self._write(*each)
            if unanswered:
                raise UnansweredError("CAS operation timed out")
            return rows({"[applied]": BOOLEAN}, [struct.pack(">?", applied)])

    def _refuse(self) -> None:
        if self.refused_at == 1:
            self.refused_at = int(self.is_away)
            raise InvalidError("the node refuses it")
        self.refused_at = max(0, self.refused_at - 1)

    def _select(self, statement: str, values: Sequence[bytes | None], page: Asked) -> bytes:
        ((distinct, columns),) = _SELECTED.findall(statement)
        table = _table(statement)
        if distinct:
            return _keys_behind(table, self._rows[_of(statement)], values[0] or b"", page)
        names = columns.split(", ")
        kinds = {name: table.types[name] for name in names}
        matching = self._matching(table, statement, values)
        begin = int(page.state or b"0")
        end = begin + page.size
        shown = ([row.get(name) for name in names] for row in matching[begin:end])
        return rows(kinds, *shown, state=b"%d" % end if end < len(matching) else b"")

    def _matching(
        self, table: _Table, statement: str, values: Sequence[bytes | None]
    ) -> Sequence[Row]:
        """Return the rows, with their keys, that a statement asks for."""
        asked = list(zip(_MARK.findall(statement), values, strict=True))
        for number, ((name, sign), value) in enumerate(asked):
            if sign == "IN":
                one = statement.replace(f"{name} IN ?", f"{name} = ?")
                before, after = values[:number], values[number + 1 :]
                each = ([*before, listed, *after] for listed in _listed(value or b""))
                return [row for given in each for row in self._matching(table, one, given)]
        partition, _ = _keys(statement, values)
        head: Row = dict(zip(table.partition, partition, strict=True))
        matching = [
            whole | head
            for name, row in sorted(self._rows[_of(statement)].get(partition, {}).items())
            if (whole := row | dict(zip(table.clustering, name, strict=True)))
            and all(
                _SIGNS[sign](whole[column] or b"", value or b"")
                for (column, sign), value in asked
                if column not in table.partition
            )
        ]
        if statement.endswith("DESC"):
            matching.reverse()
        return matching

    def _holds(self, statement: str, values: Sequence[bytes | None]) -> bool:
        """Say whether the condition of a statement holds, if it has one."""
        if " IF " not in statement:
            return True
        assert statement.endswith(" IF stamp = ?"), statement
        partition, name = _keys(statement, values)
        row = self._rows[_of(statement)].get(partition, {}).get(name, {})
        return row.get("stamp") == values[-1]

    def _write(self, statement: str, values: Sequence[bytes | None]) -> None:
        partition, name = _keys(statement, values)
        there = self._rows[_of(statement)].setdefault(partition, {})
        given = dict(zip(_names(statement), values, strict=True))
        written = given.get("TIMESTAMP")
        if ttl := given.get("TTL"):
            self.ttls.add(int.from_bytes(ttl, "big"))
        known = there.get(name, {}).get(_STAMP)
        if written is not None and known is not None and known > written:
            return
        if statement.startswith("DELETE"):
            if name:
                there.pop(name, None)
            else:
                there.clear()
            if not there:
                del self._rows[_of(statement)][partition]
            return
        table = _table(statement)
        if statement.startswith("UPDATE"):
            _, _, assigned = statement.partition(" SET ")
            assigned, _, _ = assigned.partition(" WHERE ")
            given = dict(zip(_names(f"UPDATE {_of(statement)} {assigned}"), values, strict=False))
        keys = {*table.partition, *table.clustering, *_USING}
        row: Row = there.get(name, {}) | {n: v for n, v in given.items() if n not in keys}
        if statement.startswith("INSERT") or any(v is not None for v in row.values()):
            there[name] = row if written is None else {**row, _STAMP: written}
        else:
            there.pop(name, None)  # An UPDATE to null makes no row.


def _keys_behind(table: _Table, keys: Iterable[Values], after: bytes, page: Asked) -> bytes:
    """Return the keys of partitions whose tokens are behind one, and these, in their order."""
    begin = int.from_bytes(after, "big", signed=True)
    found = sorted((crc32(repr(key).encode()), key) for key in keys)
    shown = [[*key, struct.pack(">q", token)] for token, key in found if token > begin]
    kinds = {name: table.types[name] for name in table.partition} | {"at": BIGINT}
    first = int(page.state or b"0")
    end = first + page.size
    state = b"%d" % end if end < len(shown) else b""
    return rows(kinds, *shown[first:end], state=state)


def _listed(content: bytes) -> Iterator[bytes]:
    """Yield the values of a list."""
    (count,), at = struct.unpack_from(">i", content), 4
    for _ in range(count):
        (size,) = struct.unpack_from(">i", content, at)
        yield content[at + 4 : at + 4 + size]
        at += 4 + size


def _of(statement: str) -> str:
    found = _OF_TABLES.match(statement)
    assert found, statement
    return found[2]


def _table(statement: str) -> _Table:
    return _TABLES[_of(statement)]


def _names(statement: str) -> Sequence[str]:
    """Return the columns of the question marks, in order; or TTL and TIMESTAMP."""
    listed = _LISTED.match(statement)
    found = [name for name, _ in _MARK.findall(_TOKEN.sub("token", statement))]
    return listed[1].split(", ") + found if listed else found


def _keys(statement: str, values: Sequence[bytes | None]) -> tuple[Values, Values]:
    """Return the key of the partition that a statement names, and that of the row in it."""
    table, names = _table(statement), _names(statement)
    given = dict(zip(names, values, strict=True))
    partition = [given.get(name) for name in table.partition]
    name = [given.get(name) for name in table.clustering]
    assert None not in partition, statement
    found = tuple(each for each in name if each is not None)
    whole = found if len(found) == len(table.clustering) else ()
    return tuple(each for each in partition if each is not None), whole
