"""The states of rows: folded as changes arrive, and what each change found before it.

A row's state has every value with its write time, so the fold is exact whatever the order of
arrival. The state of a partition has its deletions, ranges, and static columns. What a change found
(`before`) is both states as they were; nothing is rendered before someone asks.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.connector.history.file import HistoryFile
from headrace.connector.rows.folding import State, TableView, add
from headrace.plugins import Document, Operation

WIDE: Final = frozenset((Operation.DELETE_RANGE, Operation.DELETE_PARTITION))
"""What removes rows that it does not name."""
PARTITION: Final = b""  # The row that a partition's own state has.
GC_SECONDS: Final = 864_000  # Cassandra's default of gc_grace_seconds.
RANGES_MAX: Final = 64  # More are looked through for those that no late write can meet any more.

_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder()
Before = tuple[bytes | None, bytes | None]
"""The states of a row and of its partition, as bytes."""


def operation_of(value: Document, view: TableView) -> Operation:
    """Return what a change does: the partition of a table without clustering columns is a row."""
    operation = Operation(value["operationType"])
    if operation is Operation.DELETE_PARTITION and not view.clustering:
        return Operation.DELETE
    return operation


def row_name(value: Document, view: TableView) -> bytes:
    """Return the name of the row within its partition; PARTITION, where a change is about that."""
    if value["isStatic"] or operation_of(value, view) in WIDE:
        return PARTITION
    payload = value["payload"]
    return _PACK.encode([payload[name] for name in view.clustering])


def clustering_of(row: bytes) -> list[object]:
    """Return the clustering values in a row's name."""
    found: list[object] = _UNPACK.decode(row) if row else []
    return found


def packed(before: Before) -> bytes:
    """Return the bytes that `unpacked` reads."""
    return _PACK.encode(before)


def unpacked(content: bytes) -> Before:
    """Return what was packed."""
    row, partition = _UNPACK.decode(content)
    return row, partition


def state_of(content: bytes | None) -> State | None:
    """Return a state as the fold has it."""
    return None if content is None else _UNPACK.decode(content)


class States:
    """The states of rows within one transaction: read as needed, written at its end by `save`."""

    def __init__(self, file: HistoryFile) -> None:
        """Use *file*, within `writing`."""
        self._file = file
        self._known: dict[tuple[bytes, bytes], bytes | None] = {}
        self._changed: dict[tuple[bytes, bytes], bytes] = {}

    def apply(self, key: bytes, row: bytes, value: Document) -> Before:
        """Fold one change into the state of its row, or partition; return what it found."""
        partition = self._state(key, PARTITION)
        found = partition if row == PARTITION else self._state(key, row)
        state = add(state_of(found), value)
        if len(state.get("ranges", ())) > RANGES_MAX:
            state["ranges"] = _ranges_needed(state["ranges"])
        name = key, row
        self._known[name] = self._changed[name] = _PACK.encode(state)
        return found, (None if row == PARTITION else partition)

    def partition(self, key: bytes) -> bytes | None:
        """Return the state of a partition."""
        return self._state(key, PARTITION)

    def rows(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a partition that have a state, and these, by name."""
        stored = self._file.run("SELECT row, state FROM states WHERE key = ?", (key,)).fetchall()
        mine = {row: state for (of, row), state in self._changed.items() if of == key}
        for row, state in sorted((dict(stored) | mine).items()):
            if row != PARTITION:
                yield row, state

    def save(self) -> None:
        """Write what was changed."""
        self._file.run_many(
            "INSERT OR REPLACE INTO states VALUES (?, ?, ?)",
            ((key, row, state) for (key, row), state in self._changed.items()),
        )

    def _state(self, key: bytes, row: bytes) -> bytes | None:
        name = key, row
        if name not in self._known:
            found = self._file.run("SELECT state FROM states WHERE key = ? AND row = ?", name)
            one = found.fetchone()
            self._known[name] = one[0] if one else None
        return self._known[name]


def _ranges_needed(ranges: list[list[object]]) -> list[list[object]]:
    """Return the ranges without those a newer one of the same bounds covers, or that are too old.

    Too old is what is older by GC_SECONDS than the newest: Cassandra forgets such a deletion, too.
    """
    newest: dict[bytes, list[object]] = {}
    for each in ranges:
        bounds = _PACK.encode(each[1:])
        if bounds not in newest or newest[bounds][0] < each[0]:  # type: ignore[operator]
            newest[bounds] = each
    first = max(int(str(each[0])) for each in ranges) - GC_SECONDS * 1_000_000
    return [each for each in newest.values() if int(str(each[0])) >= first]
