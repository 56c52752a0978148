"""The rows of stores in Cassandra: two tables, fenced by lightweight transactions."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Self

from headrace.connector.foundation import crash
from headrace.connector.stores.cassandra.session import CassandraSession, CassandraStoreConfig
from headrace.plugins.stores.key_values import Change, Entry, Key, KeyValues, Partition

_UPDATE: Final = "UPDATE decided SET stamp = ?, value = ? WHERE partition = ? AND name = ?"
_DELETE: Final = "DELETE FROM decided WHERE partition = ? AND name = ?"
_GUARD: Final = "UPDATE decided SET stamp = ? WHERE partition = ? AND name = ? IF stamp = ?"
_IF: Final = " IF stamp = ?"
_PUT: Final = "INSERT INTO plain (partition, name, value) VALUES (?, ?, ?)"
_REMOVE: Final = "DELETE FROM plain WHERE partition = ? AND name = ?"
_READ: Final = {
    False: "SELECT stamp, value FROM decided WHERE partition = ? AND name = ?",
    True: "SELECT value FROM plain WHERE partition = ? AND name = ?",
}
_SCAN: Final = {
    False: "SELECT name, stamp, value FROM decided WHERE partition = ?",
    True: "SELECT name, value FROM plain WHERE partition = ?",
}
_NAMES: Final = {
    False: "SELECT name FROM decided WHERE partition = ?",
    True: "SELECT name FROM plain WHERE partition = ?",
}

Statement = tuple[str, Sequence[object]]


class CassandraValues(KeyValues):
    """Lightweight transactions write all decided rows, and no plain ones."""

    config_class = CassandraStoreConfig
    noun = "keyspace"

    def __init__(self, session: CassandraSession) -> None:
        """Own *session*, which belongs to this thread."""
        self.session = session

    @classmethod
    def open(cls, config: CassandraStoreConfig, *, create: bool = True) -> Self:
        """See `KeyValues.open`. Raises as `CassandraSession`."""
        return cls(CassandraSession(config, create=create))

    @property
    def place(self) -> str:
        """See `KeyValues.place`."""
        return self.session.place

    def read(self, keys: Collection[Key]) -> Mapping[Key, Entry]:
        """See `KeyValues.read`: a serial read finishes undecided transactions of others."""
        found: dict[Key, Entry] = {}
        for is_plain in (False, True):
            of = [key for key in keys if key.partition.is_plain is is_plain]
            asked = [(key.partition.text, key.name) for key in of]
            answers = self.session.results(_READ[is_plain], asked, serial=not is_plain)
            found |= {key: _entry(rows[0]) for key, rows in zip(of, answers, strict=True) if rows}
        return {key: found[key] for key in keys if key in found}

    def stamp(self, key: Key) -> int:
        """Return a decided row's stamp, perhaps that before an unfinished change; 0: no row."""
        found = self.session.rows(_READ[False], key.partition.text, key.name)
        return _entry(found[0]).stamp if found else 0

    def scan(self, partitions: Collection[Partition]) -> Mapping[Key, Entry]:
        """See `KeyValues.scan`."""
        found: dict[Key, Entry] = {}
        for is_plain in (False, True):
            of = [each for each in partitions if each.is_plain is is_plain]
            answers = self.session.results(_SCAN[is_plain], [(each.text,) for each in of])
            for partition, rows in zip(of, answers, strict=True):
                found |= {Key(partition, row["name"]): _entry(row) for row in rows}
        return found

    def names(self, partition: Partition) -> Sequence[str]:
        """See `KeyValues.names`."""
        rows = self.session.rows(_NAMES[partition.is_plain], partition.text)
        return [row["name"] for row in rows]

    def put(self, rows: Mapping[Key, bytes | None]) -> None:
        """See `KeyValues.put`."""
        self.session.write([_plain(key, value) for key, value in rows.items()])

    def change(
        self, changes: Sequence[Change], before: Mapping[Key, bytes] | None = None
    ) -> Sequence[bool | None]:
        """See `KeyValues.change`."""
        first = {**(before or {})}
        for change in changes:
            first |= change.first
        self.session.write([_plain(key, value) for key, value in first.items()])
        is_commit = any(change.is_commit for change in changes)
        if is_commit:
            crash.reached("commit_chunks")
        outcomes = self.session.apply_all([_statements(change) for change in changes])
        if is_commit:
            crash.reached("commit_heads")
        applied = [
            self._learnt(change) if outcome is None else outcome
            for change, outcome in zip(changes, outcomes, strict=True)
        ]
        for change, done in zip(changes, applied, strict=True):
            for key in change.then if done else ():
                self.session.write_later(*_plain(key, None))
        return applied

    def _learnt(self, change: Change) -> bool | None:
        """Read whether a change without a response was applied.

        Another process may have replaced its rows since: a caller that gets False must read again.
        """
        found = self.read([Key(change.partition, name) for name in change.rows])
        for name, value in change.rows.items():
            entry = found.get(Key(change.partition, name))
            stamp = entry.stamp if entry else None
            if value is not None and stamp == change.stamp:
                return True
            if value is not None and stamp != change.expected.get(name, stamp):
                return False
        return None

    def close(self) -> None:
        """See `KeyValues.close`."""
        self.session.close()


def _entry(row: Mapping[str, Any]) -> Entry:  # Any: the driver's rows have no types.
    return Entry(row.get("stamp", 0) or 0, row["value"] or b"")


def _plain(key: Key, value: bytes | None) -> Statement:
    place = (key.partition.text, key.name)
    return (_REMOVE, place) if value is None else (_PUT, (*place, value))


def _statements(change: Change) -> Sequence[Statement]:
    """Return the statements of a change: one for each row, some with conditions."""
    found: list[Statement] = []
    partition = change.partition.text
    for name, value in change.rows.items():
        condition = _IF if name in change.expected else ""
        expected = (change.expected[name],) if name in change.expected else ()
        if value is None:
            found.append((_DELETE + condition, (partition, name, *expected)))
        else:
            values = (change.stamp, value, partition, name, *expected)
            found.append((_UPDATE + condition, values))
    for name, stamp in change.expected.items():
        if name not in change.rows:
            found.append((_GUARD, (stamp, partition, name, stamp)))
    return found
