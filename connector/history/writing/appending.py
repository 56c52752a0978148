"""Appends changes to a history, with the configured images, within a transaction."""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any, Final, cast

from headrace import plugins
from headrace.connector.history.config import LATEST
from headrace.connector.history.errors import HistoryTableError
from headrace.connector.history.images import (
    WIDE,
    Expiries,
    States,
    clustering_of,
    packed,
    state_of,
)
from headrace.connector.history.store.contract import PARTITION, Columns, HistoryPart
from headrace.connector.rows.byte_folding import ByteFold, single_of
from headrace.connector.rows.folding import TableView, row_of
from headrace.connector.serde.codecs.records import reader_of
from headrace.connector.serde.image_fields import PRE
from headrace.connector.serde.transcode import octets
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER
from headrace.plugins.records.record import OPERATIONS

_DELETE: Final = OPERATIONS.index(plugins.Operation.DELETE)
_PARTITION: Final = OPERATIONS.index(plugins.Operation.DELETE_PARTITION)
_WIDE: Final = frozenset(map(OPERATIONS.index, WIDE))
_ALL: Final = range(len(OPERATIONS))
_WRITTEN_MAX: Final = 2_048  # Changes passed to the store together, plus up to a batch.


@dataclass(frozen=True, slots=True)
class _Shape:
    """A schema in the form for appending; `number` is its number in the file.

    `operations` maps the envelope's operation numbers to those of changes.
    """

    number: int
    read: Callable[[bytes], Any]  # Any: a value of the schema.
    fold: ByteFold
    view: TableView
    operations: Sequence[int]
    single: bytes  # The header for singles of the schema.


@dataclass(slots=True)
class _Named:
    """The rows of changes, their operations and write times.

    Rows have keys, names, and numbers among the states of a part. `partitions` are the numbers of
    their partitions, or None if no partition has a state.
    """

    shapes: list[tuple[_Shape, int, int]]
    keys: list[bytes]
    rows: list[bytes]
    operations: list[int]
    written_us: list[int]
    numbers: list[int]
    partitions: list[int] | None = None


class _Log:
    """Writes the changes of one commit into a store, many at once."""

    def __init__(self, file: HistoryPart, now_ms: int) -> None:
        """Write changes that arrive at *now_ms*; the caller appends them to `columns`."""
        self._file = file
        self._now_ms = now_ms
        self.columns = Columns()
        self.count = 0

    def write(self) -> None:
        """Write the collected changes."""
        self._file.append(self.columns, self._now_ms)
        self.count += len(self.columns)
        self.columns = Columns()


class Appender:
    """Appends to one part of a history. It only keeps schemas between calls."""

    def __init__(self, file: HistoryPart, *, retention_ms: int, expands: bool) -> None:
        """Append to *file*; with *expands*, each row removed by a deletion becomes an event."""
        self.file = file
        self._retention_ms = retention_ms
        self._expands = expands
        self._keeps_before = False
        self._expiries = Expiries(file)
        self._schemas: Mapping[bytes, plugins.RecordSchema] = {}
        self._shapes: dict[plugins.Headers, _Shape] = {}

    def append_due(self, split: str, clock: plugins.Clock, deadline_ms: int) -> bool:
        """Append expiries in separate transactions, because there may be many after a pause.

        Returns False if *deadline_ms* has passed and some are left. Raises as
        `HistoryStore.writing`.
        """
        while self._expiries.is_due(clock.wall_ms()):
            with self.file.writing(split):
                self._expiries.append(clock.wall_ms())
            if clock.monotonic_ms() >= deadline_ms:
                return False
        return True

    def append(
        self,
        submitted: Sequence[plugins.EncodedRecords],
        schemas: Mapping[bytes, plugins.RecordSchema],
        now_ms: int,
    ) -> None:
        """Append changes according to the last epoch, within `writing`; remove old ones.

        *schemas* are those that the changes name; others are in the history. Call `forget` if the
        transaction fails.
        """
        self._schemas = schemas
        scopes = self.file.epochs()[-1].scopes
        self._keeps_before = PRE in scopes
        settled_s = self._expiries.settle(now_ms)
        log = _Log(self.file, now_ms)
        with _uncollected():
            if LATEST in scopes:
                self._append_with_states(log, submitted, settled_s)
            else:
                for encoded in submitted:
                    self._append_plain(log, encoded)
                    if len(log.columns) >= _WRITTEN_MAX:
                        log.write()
            log.write()
        self.file.retain(self._retention_ms, now_ms, log.count)

    def forget(self) -> None:
        """Forget the numbers of schemas, because a failed transaction may have assigned them."""
        self._shapes = {}

    def _append_with_states(
        self, log: "_Log", submitted: Sequence[plugins.EncodedRecords], settled_s: int | None
    ) -> None:
        """Append all changes with the states before them.

        Some thousand are appended at once, so that their states stay in the processor's caches.
        """
        part: list[plugins.EncodedRecords] = []
        size = 0
        for encoded in submitted:
            part.append(encoded)
            size += len(encoded)
            if size >= _WRITTEN_MAX:
                self._append_part(log, part, settled_s)
                part, size = [], 0
        if part:
            self._append_part(log, part, settled_s)

    def _append_part(
        self, log: "_Log", part: Sequence[plugins.EncodedRecords], settled_s: int | None
    ) -> None:
        states = States(self.file, settled_s)
        named = [self._named(encoded, states) for encoded in part]
        # For the whole part or not at all: one change may alter the partition state of others.
        if self.file.has_partitions() or any(PARTITION in each.rows for each in named):
            for each in named:
                each.partitions = states.numbers(each.keys, repeat(PARTITION))
        states.look_up()
        # The first change of a row is folded only before a second one, which many rows never have.
        is_one = len({shape.number for each in named for shape, _, _ in each.shapes}) == 1
        for encoded, each in zip(part, named, strict=True):
            self._with_states(log, encoded, each, states, is_one=is_one)
        states.save()
        log.write()

    def _named(self, encoded: plugins.EncodedRecords, states: States) -> "_Named":
        """Find the rows of changes."""
        shapes = list(self._stretches(encoded))
        changes = list(encoded.values)
        rows: list[bytes] = []
        operations: list[int] = []
        written_us: list[int] = []
        for shape, begin, end in shapes:
            rows += shape.fold.rows(changes, begin, end, operations, written_us)
        keys = _keys(encoded)
        numbers = states.numbers(keys, rows)
        return _Named(shapes, keys, rows, operations, written_us, numbers)

    def _append_plain(self, log: "_Log", encoded: plugins.EncodedRecords) -> None:
        """Append changes without images. Hot: without Python code for each."""
        operations, written_us = _facts(encoded)
        columns = log.columns
        for shape, begin, end in self._stretches(encoded):
            columns.schemas += [shape.number] * (end - begin)
            columns.operations += map(shape.operations.__getitem__, operations[begin:end])
        columns.written_us += written_us
        columns.keys += _keys(encoded)
        columns.changes += encoded.values

    def _with_states(
        self,
        log: "_Log",
        encoded: plugins.EncodedRecords,
        of: "_Named",
        states: States,
        *,
        is_one: bool,
    ) -> None:
        """Append changes with the states before them, and update the states. Hot.

        *is_one* says that all changes given to these states have one schema.
        """
        columns, changes = log.columns, list(encoded.values)
        befores = columns.befores if self._keeps_before else None
        for shape, begin, end in of.shapes:
            single = shape.single if is_one else b""
            at = begin
            while at < end:
                given = of.numbers, of.partitions, changes, of.operations, at, end, befores
                stop = states.fold(shape.fold, *given, single=single)
                columns.schemas += [shape.number] * (stop - at)
                columns.operations += of.operations[at:stop]
                columns.written_us += of.written_us[at:stop]
                columns.keys += of.keys[at:stop]
                columns.rows += of.rows[at:stop]
                columns.changes += changes[at:stop]
                operation = shape.operations[columns.operations[-1]]
                columns.operations[-1] = operation  # It stops after each such operation.
                if self._expands and operation in _WIDE:
                    self._expand(columns, shape, states, shape.fold.found)
                at = stop

    def _stretches(self, encoded: plugins.EncodedRecords) -> Iterator[tuple[_Shape, int, int]]:
        """Yield the begin and end of each stretch of changes with one schema."""
        headers = encoded.headers
        if len({*map(id, headers)}) == 1:
            yield self._shape(headers[0]), 0, len(headers)
            return
        begin = 0
        for of, same in groupby(headers):
            end = begin + sum(1 for _ in same)
            yield self._shape(of), begin, end
            begin = end

    def _expand(
        self, columns: Columns, shape: _Shape, states: States, before: bytes | None
    ) -> None:
        """Append a deletion for each row that the last change removed."""
        key, content, written_us = columns.keys[-1], columns.changes[-1], columns.written_us[-1]
        for removed, state in _removed(shape, states, key, before, content):
            columns.schemas.append(shape.number)
            columns.operations.append(_DELETE)
            columns.written_us.append(written_us)
            columns.keys.append(key)
            columns.rows.append(removed)
            columns.changes.append(content)
            if self._keeps_before:
                columns.befores.append(packed((state, before)))

    def _shape(self, headers: plugins.Headers) -> _Shape:
        known = self._shapes.get(headers)
        if known is None:
            schema_id = dict(headers).get(SCHEMA_ID_HEADER, b"")
            schema = self._schemas.get(schema_id) or self._kept_schema(schema_id)
            if schema is None:
                raise HistoryTableError(
                    f"a change names an unknown schema, {schema_id.hex()}", place=self.file.place
                )
            number = self.file.schema_number(schema)
            view = TableView(schema)
            operations = [_DELETE if n == _PARTITION and not view.clustering else n for n in _ALL]
            known = _Shape(
                number,
                reader_of(schema.value),
                view.fold,
                view,
                operations,
                single_of(schema.schema_id),
            )
            self._shapes[headers] = known
        return known

    def _kept_schema(self, schema_id: bytes) -> plugins.RecordSchema | None:
        kept = self.file.schemas().values()
        return next((each for each in kept if each.schema_id == schema_id), None)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable Python's search for cycles: appending makes many objects, without cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _keys(encoded: plugins.EncodedRecords) -> list[bytes]:
    """Return the keys of changes."""
    keys = encoded.keys
    return [key or b"" for key in keys] if None in keys else cast("list[bytes]", list(keys))


def _facts(encoded: plugins.EncodedRecords) -> tuple[Sequence[int], Sequence[int]]:
    """Return the operations of changes, as numbers, and their write times."""
    if encoded.facts is not None:
        return encoded.facts.operations, encoded.facts.timestamps_us
    parts = [_first_longs(content) for content in encoded.values]
    return [operation for _, operation in parts], [written_us for written_us, _ in parts]


def _first_longs(content: bytes) -> tuple[int, int]:
    """Return the first fields of the envelope: a change's write time and operation."""
    written_us, at = octets.long_at(content, 0)
    return written_us, octets.long_at(content, at)[0]


def _removed(
    shape: _Shape,
    states: States,
    key: bytes,
    before: bytes | None,
    content: bytes,
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows that a deletion in their partition removed, and their states, by name.

    *before* is the state of the partition before the deletion.
    """
    view, value = shape.view, shape.read(content)
    partition = [value["payload"][name] for name in view.key]
    now_s = value["timestampMicros"] // 1_000_000
    past, present = state_of(before), state_of(states.partition(key))
    for row, packed_state in states.rows(key):
        state, name = state_of(packed_state), (partition, clustering_of(row))
        assert state is not None  # noqa: S101 (`rows` yields states)
        if row_of(view, name, state, past, now_s) and not row_of(view, name, state, present, now_s):
            yield row, packed_state
