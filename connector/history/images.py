"""The states of rows: folded as changes arrive, and what each change found before it.

A row's state has every value with its write time, so the fold is exact whatever the order of
arrival. The state of a partition has its deletions, ranges, and static columns. What a change found
(`before`) is both states as they were; nothing is rendered before someone asks.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from headrace.connector.history.file import HistoryFile
from headrace.connector.rows.byte_folding import ByteFold
from headrace.connector.rows.folding import State, TableView
from headrace.connector.rows.message_pack import BadStateError
from headrace.plugins import Document, Operation

WIDE: Final = frozenset((Operation.DELETE_RANGE, Operation.DELETE_PARTITION))
"""What removes rows that it does not name."""
PARTITION: Final = b""  # The row that a partition's own state has.
GC_SECONDS: Final = 864_000  # Cassandra's default of gc_grace_seconds.
RANGES_MAX: Final = 64  # More are looked through for those that no late write can meet any more.

_PACK: Final = msgspec.msgpack.Encoder()
_NOTHING: Final = _PACK.encode((None, None))
_UNPACK: Final = msgspec.msgpack.Decoder()
Name = tuple[bytes, bytes]
"""The key of a partition, and the name of a row in it."""
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
    return _NOTHING if before == (None, None) else _PACK.encode(before)


def unpacked(content: bytes) -> Before:
    """Return what was packed."""
    row, partition = _UNPACK.decode(content)
    return row, partition


def state_of(content: bytes | None) -> State | None:
    """Return a state as the fold has it. Raises BadStateError."""
    try:
        return None if content is None else _UNPACK.decode(content)
    except ValueError as error:
        raise BadStateError(f"the state of a row is damaged: {error}") from error


class States:
    """The states of rows within one transaction: read in groups, written at its end by `save`."""

    def __init__(self, file: HistoryFile) -> None:
        """Use *file*, within `writing`."""
        self._file = file
        self._known: dict[Name, bytes | None] = {}
        self._numbers: dict[Name, int] = {}  # Of those in the file.
        self._changed: dict[Name, bytes] = {}

    def look_up(self, names: Iterable[Name]) -> None:
        """Read the states of these rows, which `apply` and `partition` need."""
        unknown = sorted({*names}.difference(self._known))  # In the order of the file.
        self._known.update(dict.fromkeys(unknown))
        for number, key, row, state in self._file.states(unknown):
            self._known[key, row] = state
            self._numbers[key, row] = number

    def apply(self, name: Name, fold: ByteFold) -> Before:
        """Fold the change that *fold* has read into the state of its row, or partition.

        Return what it found.
        """
        found = self._known[name]
        state = fold.fold(found)
        if fold.ranges > RANGES_MAX:
            state = _without_old_ranges(state)
        self._known[name] = self._changed[name] = state
        return found, (self._known.get((name[0], PARTITION)) if name[1] else None)

    def partition(self, key: bytes) -> bytes | None:
        """Return the state of a partition."""
        return self._known[key, PARTITION]

    def rows(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a partition that have a state, and these, by name."""
        mine = {row: state for (of, row), state in self._changed.items() if of == key}
        for row, state in sorted((dict(self._file.states_of(key)) | mine).items()):
            if row != PARTITION:
                yield row, state

    def save(self) -> None:
        """Write what was changed."""
        numbers = self._numbers
        new = sorted(self._changed.keys() - numbers.keys())  # In the order of the index.
        if any(row == PARTITION for _, row in new):
            self._file.note_partitions()
        self._file.keep_states(
            ((bytearray(self._changed[n]), numbers[n]) for n in numbers if n in self._changed),
            ((bytearray(n[0]), bytearray(n[1]), bytearray(self._changed[n])) for n in new),
        )


def _without_old_ranges(state: bytes) -> bytes:
    made = state_of(state)
    assert made is not None  # noqa: S101 (there is one)
    made["ranges"] = _ranges_needed(made["ranges"])
    return _PACK.encode(made)


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
