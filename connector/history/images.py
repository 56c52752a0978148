"""The states of rows: folded as changes arrive, and the states before each change.

A row's state has every value with its write time, so the result is the same for any order of
arrival. The state of a partition has its deletions, ranges, and static columns. The states before a
change (`before`) are both states; they are rendered only on request.

Expiry does not change states. If its events are stored, those that are due arrive before the next
commit folds anything, so that the images of a row follow one another without a gap.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from headrace.connector.history import arrival
from headrace.connector.history.config import TTL_EVENTS
from headrace.connector.history.store.contract import (
    GONE,
    LESS,
    PARTITION,
    Columns,
    HistoryPart,
    Name,
)
from headrace.connector.history.store.singles import damaged
from headrace.connector.rows.byte_folding import ByteFold, is_single
from headrace.connector.rows.folding import State, TableView, columns_of, shown_columns
from headrace.connector.rows.message_pack import BadStateError
from headrace.connector.serde.image_fields import PRE
from headrace.plugins import Document, Operation
from headrace.plugins.records.record import OPERATIONS

WIDE: Final = frozenset((Operation.DELETE_RANGE, Operation.DELETE_PARTITION))
"""Operations that remove rows without naming them."""
KEPT: Final = (*OPERATIONS, Operation.DELETE, Operation.UPDATE)
"""The operations, by their numbers in the file; rows expired in those from GONE on."""
EXPIRED_MAX: Final = 1_000  # The number of states whose expired values one transaction stores.
GC_SECONDS: Final = 864_000  # Cassandra's default of gc_grace_seconds.
RANGES_MAX: Final = 64  # With more, those that no late write can meet are removed.

_PACK: Final = msgspec.msgpack.Encoder()
_NOTHING: Final = _PACK.encode((None, None))
_UNPACK: Final = msgspec.msgpack.Decoder()
Before = tuple[bytes | None, bytes | None]
"""The states of a row and of its partition, as bytes."""


def operation_of(value: Document, view: TableView) -> Operation:
    """Return the operation of a change; a partition without clustering columns is a row."""
    operation = Operation(value["operationType"])
    if operation is Operation.DELETE_PARTITION and not view.clustering:
        return Operation.DELETE
    return operation


def row_name(value: Document, view: TableView) -> bytes:
    """Return the name of the row within its partition, or PARTITION for the partition."""
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
    """Return the states that were packed."""
    row, partition = _UNPACK.decode(content)
    return row, partition


def state_of(content: bytes | None) -> State | None:
    """Return a state as Python data. Raises BadStateError."""
    try:
        return None if content is None else _UNPACK.decode(content)
    except ValueError as error:
        raise damaged(f"the state of a row is damaged: {error}") from error


@contextlib.contextmanager
def repairable() -> Iterator[None]:
    """Add a repair hint to the error of a damaged state. Raises BadStateError."""
    try:
        yield
    except BadStateError as error:
        raise damaged(error.message, error.place) from error


class States:
    """The states of rows within one transaction: read in groups, written by `save`.

    Rows are numbered from 0, in the order in which `numbers` first receives them.
    """

    def __init__(self, file: HistoryPart, settled_s: int | None) -> None:
        """Use *file* within `writing`; *settled_s* is the result of `Expiries.settle`."""
        self._file = file
        self._settled_s = settled_s
        self._numbers: defaultdict[Name, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._found: list[bytes | None] = []  # By number, as stored in the file,
        self._states: list[bytes | None] = []  # and the current states.
        self._alone: Callable[[bytes], bytes]  # Folds singles, if there may be some.

    def numbers(self, keys: Iterable[bytes], rows: Iterable[bytes]) -> list[int]:
        """Return the numbers of rows, each by its key and its name; `look_up` then finds them."""
        return [*map(self._numbers.__getitem__, zip(keys, rows, strict=False))]

    def look_up(self) -> None:
        """Read the states of all numbered rows. Call it once, before folding."""
        names = list(self._numbers)
        found: list[bytes | None] = [None] * len(names)
        for key, row, state in self._file.states(names):
            found[self._numbers[key, row]] = state
        self._found, self._states = found, found.copy()

    def fold(  # noqa: PLR0913, PLR0917 (as `ByteFold.fold_many`)
        self,
        fold: ByteFold,
        rows: list[int],
        partitions: list[int] | None,
        changes: list[bytes],
        operations: list[int],
        begin: int,
        end: int,
        befores: list[bytes] | None,
        *,
        single: bytes,
    ) -> int:
        """Fold changes from *begin*, possibly not up to *end*; return where it stopped.

        *befores* receives the states before each change. Folding stops after each deletion of many
        rows. Unless *single* is empty, the first change of a row is folded only when its state is
        read; then all calls have the same *fold*.
        """
        if self._settled_s is not None:  # Their expiry is needed now.
            single = b""
        self._alone = fold.alone
        given = rows, partitions, changes, operations, begin, end, self._states, befores, single
        with repairable():
            stop = fold.fold_many(*given)
        last = rows[stop - 1]
        state = self._states[last]
        if fold.ranges > RANGES_MAX and state is not None:
            self._states[last] = _without_old_ranges(state)
        return stop

    def partition(self, key: bytes) -> bytes | None:
        """Return the state of a partition."""
        state = self._states[self._numbers[key, PARTITION]]
        return None if state is None else self._folded(state)

    def rows(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a partition that have a state, and the states, by name."""
        mine = {row: state for (of, row), state in self._changed().items() if of == key}
        for row, state in sorted((dict(self._file.states_of(key)) | mine).items()):
            if row != PARTITION:
                yield row, self._folded(state)

    def save(self) -> None:
        """Write the changed states."""
        changed = self._changed()
        expiries: dict[Name, int] = {}
        if self._settled_s is not None:
            expiries = {n: next_expiry(s, self._settled_s) for n, s in changed.items()}
        self._file.keep_states(changed, expiries)

    def _folded(self, state: bytes) -> bytes:
        return self._alone(state) if is_single(state) else state

    def _changed(self) -> dict[Name, bytes]:
        return {
            name: now
            for name, now, found in zip(self._numbers, self._states, self._found, strict=True)
            if now is not None and now is not found
        }


class Expiries:
    """Appends expiries: an event for each row and second, if the row then shows less."""

    def __init__(self, file: HistoryPart) -> None:
        """Append to *file*."""
        self._file = file
        self._views: dict[int, TableView] = {}

    def is_due(self, now_ms: int) -> bool:
        """Return whether `append` has anything to do. Raises as `HistoryPart.reading`."""
        with self._file.reading():
            epochs = self._file.epochs()
            is_kept = bool(epochs) and TTL_EVENTS in epochs[-1].scopes
            return is_kept and bool(self._file.due(self._second(now_ms), 1))

    def settle(self, now_ms: int) -> int | None:
        """Append all due events, within `writing`; return the second up to which they are.

        Returns None if such events are not stored.
        """
        if TTL_EVENTS not in self._file.epochs()[-1].scopes:
            return None
        while self.append(now_ms):
            pass
        return self._second(now_ms)

    def append(self, now_ms: int) -> bool:
        """Append events of up to EXPIRED_MAX states, within `writing`; return whether any."""
        file = self._file
        due = file.due(self._second(now_ms), EXPIRED_MAX)
        if not due:
            return False
        schema = max(file.schemas())
        view = self._view(schema)
        keeps = PRE in file.epochs()[-1].scopes
        partitions = {key: state for key, _, state in file.states(_partitions(due))}
        made = Columns()
        next_ones: dict[Name, int] = {}
        for key, row, content, at_s in due:
            around = None if row == PARTITION else partitions.get(key)
            before, after = (_shown(view, row, (content, around), s) for s in (at_s - 1, at_s))
            if before != after:
                made.schemas.append(schema)
                made.operations.append(GONE if after is None else LESS)
                made.written_us.append(at_s * 1_000_000)
                made.keys.append(key)
                made.rows.append(row)
                made.changes.append(b"")
                if keeps:
                    made.befores.append(packed((content, around)))
            next_ones[key, row] = next_expiry(content, at_s)
        file.append(made, now_ms)
        file.set_expiries(next_ones)
        return True

    def _second(self, now_ms: int) -> int:
        """Return the second in which the next change arrives, which is the time of its images."""
        return arrival.ms_of(self._file.next_arrival(now_ms)) // 1_000

    def _view(self, number: int) -> TableView:
        if number not in self._views:
            self._views[number] = TableView(self._file.schemas()[number])
        return self._views[number]


def _partitions(due: Iterable[tuple[bytes, bytes, bytes, int]]) -> list[Name]:
    return sorted({(key, PARTITION) for key, row, _, _ in due if row != PARTITION})


def _shown(view: TableView, row: bytes, states: Before, at_s: int) -> Document | None:
    """Return the shown part of a row, or of static columns, at *at_s*; None without a row."""
    state, around = state_of(states[0]), state_of(states[1])
    assert state is not None  # noqa: S101 (a due row has one)
    if row == PARTITION:
        found: Document | None = shown_columns(state["columns"], state["deleted"], at_s)
    else:
        found = columns_of(view, clustering_of(row), state, around, at_s)
    return found and {name: value for name, value in found.items() if name in view.types}


def next_expiry(content: bytes, after_s: int) -> int:
    """Return the next second after *after_s* at which a value of a state expires, or 0."""
    state = state_of(content)
    assert state is not None  # noqa: S101 (content is given)
    _, has_expiry, expires = state.get("live", (0, False, 0))
    times = [expires] if has_expiry else []
    for column in state["columns"].values():
        cells = column["cells"].values() if isinstance(column, Mapping) else (column,)
        times += [cell[1] for cell in cells if cell[1] is not None]
    return min((at_s for at_s in times if at_s > after_s), default=0)


def _without_old_ranges(state: bytes) -> bytes:
    made = state_of(state)
    assert made is not None  # noqa: S101 (a state is given)
    made["ranges"] = _ranges_needed(made["ranges"])
    return _PACK.encode(made)


def _ranges_needed(ranges: list[list[object]]) -> list[list[object]]:
    """Return the ranges except those that are too old or covered by a newer equal one.

    A range is too old if it is older by GC_SECONDS than the newest: Cassandra forgets such a
    deletion, too.
    """
    newest: dict[bytes, list[object]] = {}
    for each in ranges:
        bounds = _PACK.encode(each[1:])
        if bounds not in newest or newest[bounds][0] < each[0]:  # type: ignore[operator]
            newest[bounds] = each
    first = max(int(str(each[0])) for each in ranges) - GC_SECONDS * 1_000_000
    return [each for each in newest.values() if int(str(each[0])) >= first]
