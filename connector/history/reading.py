"""Answers queries of a history: the changes in a range of arrivals, in order.

A change is rendered on request, from its bytes and the states before it. What a query reported as
final stays final: before it reads, it moves the clock of the history past the end of its range, so
that nothing more can arrive there.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from headrace.connector.history import arrival
from headrace.connector.history.config import CHANGE, LATEST
from headrace.connector.history.errors import (
    HistoryBusyError,
    HistoryTruncatedError,
    ImageNotKeptError,
    QueryError,
)
from headrace.connector.history.images import (
    KEPT,
    WIDE,
    Expiries,
    clustering_of,
    repairable,
    state_of,
    unpacked,
)
from headrace.connector.history.query import Event, Page, Place, Query
from headrace.connector.history.rendering import EMPTY, JsonShape, Shape, Values
from headrace.connector.history.store.contract import (
    GONE,
    PARTITION,
    Change,
    Epoch,
    HistoryStore,
    Range,
    Seed,
)
from headrace.connector.rows.folding import State, deleted_until
from headrace.connector.rows.snapshots import is_doubtful
from headrace.connector.rows.state_reading import StateReader
from headrace.connector.serde.image_fields import POST, PRE
from headrace.plugins import Clock, Document, Operation, Problem, RecordSchema
from headrace.plugins.records.record import OPERATIONS

_LATER: Final = 1 << 62
_IMAGES: Final = frozenset((PRE, POST, LATEST))
_LATEST: Final = frozenset((LATEST,))
_NO_IMAGES: Final = frozenset[str]()
_WRITTEN: Final = frozenset(range(GONE))
# Numbers, because hashing a member of an enumeration runs Python code.
_WIDE: Final = frozenset(number for number, each in enumerate(KEPT) if each in WIDE)
_DELETES: Final = frozenset(n for n, each in enumerate(KEPT) if each is Operation.DELETE)
_ROWS_MAX: Final = 4_096  # Rows whose key values are cached.
_UNPACK: Final = msgspec.msgpack.Decoder()
_FOLDED: Final = b"\xa7columns\xde"  # The begin of columns in a folded state,
_HEAD_BYTES: Final = 32  # which is within these first bytes.


class History:
    """Reads a history; for one thread at a time."""

    def __init__(
        self,
        file: HistoryStore,
        include: frozenset[str],
        clock: Clock,
        shape_of: Callable[[RecordSchema], Shape] = JsonShape,
    ) -> None:
        """Read *file*, which `close` closes; by default queries return *include*.

        *shape_of* makes the renderer of a schema's changes; the default renders JSON documents.
        """
        self.file = file
        self.include = include
        self.clock = clock
        self._shape_of = shape_of
        self._expiries = [(part, Expiries(part)) for part in file.parts]
        self._shapes: dict[int, Shape] = {}
        self._rows: dict[tuple[object, ...], Row] = {}
        # The image after the last change: often the next change of the same row needs it.
        self._image: Image | None = None
        self._partition: tuple[bytes | None, State | None] = (None, None)
        self._seeds: list[tuple[Epoch, Seed | None]] = []  # At the time of the query.
        self._covered: tuple[int, int, Coverage] | None = None  # From one arrival to another.

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self.file.close()

    def key_columns(self) -> list[str]:
        """Return the primary key columns; empty before the first change."""
        schemas = self.file.schemas()
        if not schemas:
            return []
        view = self.shape(max(schemas)).view
        return [view.names[name] for name in (*view.key, *view.clustering)]

    def select(self, query: Query, *, settles: bool = True) -> Page:
        """Return the first `limit` events of a query, and how to continue.

        Unless it *settles* the range up to now, or while a commit is running, the answer ends after
        the last commit.

        Raises:
            HistoryTruncatedError: changes at the beginning of its range were removed.
            ImageNotKeptError: it wants images of a time when they were not stored.
            QueryError: it does not fit the history's table.
            HistoryBusyError: another process kept the file locked.

        """
        may_come = self.file.last() + 1
        if settles and not (query.until and query.until <= may_come):
            may_come = self._settled(query)
        elif not settles:
            may_come = self._committed()
        scopes = self.scopes_of(query)
        begin, end = _range(query, may_come)
        with self.file.reading(), repairable():
            self._look_up_epochs()
            self._check(begin, end, scopes)
            events, more = self._events(query, scopes, begin, end)
        token = Place(events[-1].arrival, query.descending).token() if more else ""
        return Page(events=events, token=token, may_come=may_come)

    def pages(self, query: Query, *, settles: bool = True) -> Iterator[Page]:
        """Yield all pages of a query. Each is read on request; raises as `select`.

        Changes committed after the first page are not included.
        """
        while True:
            page = self.select(query, settles=settles)
            yield page
            if not page.token:
                return
            query = replace(query, after=page.token, until=query.until or page.may_come)

    def fixed(self, query: Query) -> Query:
        """Return the query limited to the current changes, so that its result never changes.

        Raises as `select`.
        """
        begin, end = _range(query, self._settled(query))
        self._key(query)
        with self.file.reading():
            self._look_up_epochs()
            self._check(begin, end, self.scopes_of(query))
        return replace(query, until=end)

    def count(self, query: Query) -> int:
        """Return the number of changes of a `fixed` query, counted as for `divided`."""
        wanted = _wanted(query, *_range(query, 0), self._key(query))
        with self.file.reading():
            return self.file.count(wanted)

    def divided(self, query: Query, size: int) -> list[Query]:
        """Return the parts of a `fixed` query, in order, each of *size* changes.

        Unless the whole partition key is given, changes of other keys count, too. Raises as
        `select`.
        """
        begin, end = _range(query, 0)
        with self.file.reading():
            self._look_up_epochs()
            self._check(begin, end, self.scopes_of(query))
            cuts = self.file.cuts(_wanted(query, begin, end, self._key(query)), size)
        tokens = [query.after, *(Place(cut - 1, descending=False).token() for cut in cuts)]
        return [
            replace(query, after=token, until=until)
            for token, until in zip(tokens, [*cuts, query.until], strict=True)
        ]

    def scopes_of(self, query: Query) -> frozenset[str]:
        """Return the scopes of the events of a query."""
        return self.include if query.scopes is None else query.scopes

    def _look_up_epochs(self) -> None:
        epochs = self.file.epochs()
        self._seeds = [(each, self.file.seed(each.states_since_us)) for each in epochs]
        self._covered = None

    def _settled(self, query: Query) -> int:
        """Return the first arrival still possible; if possible, none is in the query's past."""
        now_ms = self.clock.wall_ms()
        with contextlib.suppress(HistoryBusyError):  # What it commits is not yet final.
            self.append_due(now_ms)
            self.file.settle(now_ms if query.to_ms is None else min(query.to_ms, now_ms))
        return self.file.last() + 1

    def append_due(self, now_ms: int) -> None:
        """Make everything expired by *now_ms* arrive, if this process may write.

        Raises:
            HistoryBusyError: a commit is running; the rest arrives with it, or later.

        """
        for part, expiries in self._expiries:
            while part.can_write() and expiries.is_due(now_ms):
                with part.settling():
                    expiries.append(now_ms)

    def _committed(self) -> int:
        """Return the first arrival after the last commit, or before it while one is running."""
        with contextlib.suppress(HistoryBusyError):
            self.file.catch_up()
        return self.file.last() + 1

    def _check(self, begin: int, end: int, scopes: frozenset[str]) -> None:
        """Refuse a range whose changes were removed, or whose images were not stored."""
        floor = self.file.floor()
        if begin < floor and begin < end:
            raise _truncated("cdc_time", floor)
        self._check_kept(begin, end, scopes)
        epochs = [epoch for epoch, _ in self._seeds]
        if epochs and LATEST in scopes - epochs[-1].scopes:
            raise ImageNotKeptError([_not_kept(LATEST, epochs[-1].since, _LATER)])

    def _check_kept(self, begin: int, end: int, scopes: frozenset[str]) -> None:
        """Refuse a range in which images were not stored."""
        epochs = [epoch for epoch, _ in self._seeds]
        ends = (*(epoch.since for epoch in epochs[1:]), _LATER)
        for epoch, until in zip(epochs, ends, strict=False):  # None, if it was just made.
            missing = scopes - epoch.scopes
            if missing and max(begin, epoch.since) < min(end, until):
                raise ImageNotKeptError([_not_kept(min(missing), epoch.since, until)])

    def _events(
        self, query: Query, scopes: frozenset[str], begin: int, end: int
    ) -> tuple[list[Event], bool]:
        """Return up to `limit` events, and whether there are more."""
        wanted = self._key(query)
        found: list[tuple[Event, Change, Row]] = []
        more = False
        asked = _wanted(query, begin, end, wanted)
        for change in self.file.changes(asked, descending=query.descending):
            row = self.row_of(change)
            if wanted.values and not row.has(wanted.values):
                continue
            if more := len(found) == query.limit:
                break
            found.append((self._event(change, row, scopes), change, row))
        if found and LATEST in scopes:
            return self._with_latest(found), more
        return [event for event, _, _ in found], more

    def _key(self, query: Query) -> "_Key":
        """Return the key values that a query wants.

        Raises:
            QueryError: the key does not belong to the table, or a bucket does not exist.

        """
        none = [number for number in query.partitions if not 0 <= number < self.file.buckets]
        if none:
            hint = f"buckets are 0 to {self.file.buckets - 1}"
            raise QueryError([Problem("partition_id", f"bucket {min(none)} does not exist", hint)])
        values = query.key
        schemas = self.file.schemas() if values else {}
        if not schemas:
            return _Key(values, None)
        names = self.key_columns()
        unknown = [name for name in values if name not in names]
        if unknown:
            hint = f"columns of the primary key are {', '.join(names)}"
            raise QueryError([Problem(name, "cannot be compared", hint) for name in unknown])
        shape = self.shape(max(schemas))
        problems = [
            Problem(
                name, f"is {expected}, found {values[name]!r}"[:80], "compare it as JSON has it"
            )
            for name, expected in shape.misfits(values)
        ]
        if problems:
            raise QueryError(problems)
        return _Key(values, shape.key_bytes(values))

    def changes(self, behind: int, scopes: frozenset[str], count_max: int) -> "list[Change]":
        """Return the next changes that arrived after *behind*, in order.

        Only written changes are included, not expiries.

        Raises:
            HistoryTruncatedError: changes in between were removed.
            ImageNotKeptError: *scopes* has an image that was not stored for all of them.
            HistoryBusyError: another process kept the file locked.

        """
        end = self._committed()
        with self.file.reading():
            if behind < self.file.removed():
                raise _truncated("position", self.file.floor())
            wanted = Range(behind + 1, end, operations=_WRITTEN)
            found = list(self.file.changes(wanted, count_max=count_max))
            if found:
                self._look_up_epochs()
                self._check_kept(found[0].arrival, found[-1].arrival + 1, scopes)
            return found

    def shape(self, number: int) -> Shape:
        """Return the renderer for changes of a schema, by its number."""
        if number not in self._shapes:
            self._shapes |= {n: self._shape_of(schema) for n, schema in self.file.schemas().items()}
        return self._shapes[number]

    def row_of(self, change: Change) -> "Row":
        """Return the row of a change; the shape's fold has read the change, unless expired."""
        shape = self.shape(change.schema)
        is_written = change.operation < GONE
        if is_written:
            shape.fold.read(change.change)
        key = shape.reader.key() if is_written else change.key
        name = change.schema, key, change.row, change.operation
        row = self._rows.get(name)
        if row is None:
            if len(self._rows) >= _ROWS_MAX:
                self._rows.clear()
            row = self._rows[name] = row_of(shape, change)
        return row

    def past_of(self, change: Change, row: "Row") -> "Past":
        """Return the states before and after a change, whose images were stored.

        The fold has read the change.
        """
        assert change.before is not None  # noqa: S101 (`_check_kept` has checked)
        before, around = unpacked(change.before)
        after = before
        if change.operation < GONE:
            after = None if row.is_derived else row.shape.fold.fold(before)
        if around != self._partition[0]:
            self._partition = around, state_of(around)
        covered = self._covered
        if covered is None or not covered[0] <= change.arrival < covered[1]:
            covered = self._covered = self._covering(change.arrival)
        return Past(before, after, around, self._partition[1], covered[2])

    def _event(self, stored: Change, row: "Row", scopes: frozenset[str]) -> Event:
        number = stored.operation
        is_expired = number >= GONE
        change = None
        if CHANGE in scopes and not (is_expired or row.is_derived):
            change = row.shape.written_image(stored.change)
        # The rows removed by such a deletion have their own events.
        images = _NO_IMAGES if number in _WIDE else scopes & _IMAGES
        pre = post = None
        is_effective, is_whole = True, True
        if images - _LATEST:
            pre, post, is_effective, is_whole = self._past_images(stored, row, images)
        return Event(
            arrival=stored.arrival,
            partition_id=stored.bucket,
            key=dict(row.key()),
            operation=KEPT[number],
            written_us=stored.written_us,
            change=change,
            pre=pre,
            post=post,
            partial=not is_whole,
            derived=row.is_derived,
            static=stored.row == PARTITION if is_expired else bool(row.shape.fold.is_static),
            effective=is_effective,
            expired=is_expired,
        )

    def _past_images(
        self, stored: Change, row: "Row", images: frozenset[str]
    ) -> tuple[Any, Any, bool, bool]:
        """Return the images before and after an event, whether it had an effect, and is whole."""
        is_expired = stored.operation >= GONE
        newest_us = 0 if is_expired else row.shape.reader.newest_us()
        is_simple = row.clustering is not None and not row.shape.reader.has_cells
        past = self.past_of(stored, row)
        before_s = at_s = arrival.ms_of(stored.arrival) // 1_000
        if is_expired:
            at_s = stored.written_us // 1_000_000
            before_s = at_s - 1
        of_before = self._image_of(row, past, past.before, before_s)
        of_after = None
        if stored.operation not in _DELETES:
            of_after = self._image = self._image_of(row, past, past.after, at_s)
        is_effective = (
            row.is_derived
            or is_expired
            or (
                past.changes(is_simple=is_simple)
                and (of_after is None or newest_us > of_after.deleted_us)
            )
        )
        return (
            of_before.copied() if PRE in images else None,
            of_after.content if of_after is not None and POST in images else None,
            is_effective,
            of_before.is_whole and (of_after is None or of_after.is_whole),
        )

    def _image_of(self, row: "Row", past: "Past", state: bytes | None, at_s: int) -> "Image":
        """Return an image of a row, if possible the one after the last change."""
        of = past.of(row, state)
        known = self._image
        if known is not None and known.of == of and known.at_s in (None, at_s):
            return known
        content, is_whole, deleted_us = row.image(state, past.partition, at_s, past.coverage)
        at = at_s if row.shape.depends_on_time() else None
        return Image(of, at, content, is_whole, deleted_us)

    def _with_latest(self, found: Sequence[tuple[Event, Change, "Row"]]) -> list[Event]:
        """Return events with the newest images of their rows, reading the states together."""
        now_s, coverage = self.clock.wall_ms() // 1_000, self._covering(_LATER)[2]
        names = {(of.key, of.row) for _, of, _ in found}
        if self.file.has_partitions():
            names |= {(key, PARTITION) for key, _ in names}
        states = {(key, row): content for key, row, content in self.file.states(sorted(names))}
        made = []
        for event, of, row in found:
            if event.operation in WIDE:  # The rows that it removed have their own events.
                made.append(event)
                continue
            partition = None if of.row == PARTITION else state_of(states.get((of.key, PARTITION)))
            state = states.get((of.key, of.row))
            latest, is_whole, _ = row.image(state, partition, now_s, coverage)
            partial = event.partial or not is_whole
            made.append(msgspec.structs.replace(event, latest=latest, partial=partial))
        return made

    def _covering(self, at: int) -> tuple[int, int, "Coverage"]:
        """Return how complete the states before a change at *at* are.

        Also return the range of arrivals for which this is the same.
        """
        number = max(n for n, (epoch, _) in enumerate(self._seeds) if epoch.since <= at)
        epoch, seed = self._seeds[number]
        begin, end = epoch.since, _LATER + 1
        if number + 1 < len(self._seeds):
            end = self._seeds[number + 1][0].since
        assert epoch.states_since_us is not None  # noqa: S101 (`_check_kept` has checked)
        if seed is None:
            return begin, end, Coverage(epoch.states_since_us)
        is_done = seed.done is not None and at >= seed.done
        if seed.done is not None:
            begin, end = (max(begin, seed.done), end) if is_done else (begin, min(end, seed.done))
        return begin, end, Coverage(epoch.states_since_us, seed.begun_us, is_seeded=is_done)


def row_of(shape: Shape, change: Change) -> "Row":
    """Return the row of a change. Its fold has read the change, unless it expired."""
    if change.operation >= GONE:
        of_row = None if change.row == PARTITION else clustering_of(change.row)
        return Row(shape, shape.partition(change.key), of_row, change.row, is_derived=False)
    fold, view = shape.fold, shape.view
    given = fold.operation
    if OPERATIONS[given] is Operation.DELETE_PARTITION and not view.clustering:
        given = OPERATIONS.index(Operation.DELETE)  # Such a partition is a row.
    values: Values = _UNPACK.decode(shape.reader.key())
    count = len(view.key)
    clustering: Values | None = None
    is_derived = change.operation != given
    if is_derived:
        clustering = clustering_of(change.row)
    elif not fold.is_static and OPERATIONS[given] not in WIDE:
        clustering = values[count:]
    return Row(shape, values[:count], clustering, change.row, is_derived)


def document_of(shape: Shape, change: Change) -> Document:
    """Return the key and the written columns of a change, as JSON values."""
    is_written = change.operation < GONE
    if is_written:
        shape.fold.read(change.change)
    row = row_of(shape, change)
    made = {"key": row.key()}
    written = shape.written_image(change.change) if is_written and not row.is_derived else None
    return made if written is None else made | {"change": written}


def _range(query: Query, may_come: int) -> tuple[int, int]:
    """Return the first arrival of a query, and the one after its last."""
    begin, end = arrival.first_of(query.from_ms), query.until or may_come
    if query.to_ms is not None:
        end = min(end, arrival.first_of(query.to_ms))
    if query.after:
        place = Place.of(query.after, descending=query.descending)
        begin, end = (begin, place.arrival) if place.descending else (place.arrival + 1, end)
    return begin, end


def _wanted(query: Query, begin: int, end: int, key: "_Key") -> Range:
    """Return the range of changes that may be events of *query*."""
    return Range(
        begin,
        end,
        buckets=query.partitions,
        operations=query.operations,
        written_from_us=query.written_from_us,
        written_to_us=query.written_to_us,
        key=key.content,
    )


def _truncated(key: str, floor: int) -> HistoryTruncatedError:
    first = arrival.time_text(arrival.ms_of(floor))
    hint = f"begin at {first} or later; ALTER CDC … WITH retention = keeps more from now on"
    return HistoryTruncatedError(
        [Problem(key, f"changes that arrived before {first} were removed", hint)]
    )


def _not_kept(scope: str, since: int, until: int) -> Problem:
    begin = arrival.time_text(arrival.ms_of(since)) if since else "the beginning"
    end = "now" if until == _LATER else arrival.time_text(arrival.ms_of(until))
    return Problem(
        "include",
        f"the {scope} image was not kept from {begin} to {end}",
        "ask for another time; or for the change alone: SELECT /*+ CDC_INCLUDE(CHANGE) */",
    )


class Coverage(NamedTuple):
    """The content of states: everything written after `since_us`, and rows of a snapshot.

    The logs have everything written after `seed_us`. If it `is_seeded`, all rows were read.
    """

    since_us: int
    seed_us: int | None = None
    is_seeded: bool = False


class Past(msgspec.Struct, frozen=True, gc=False):
    """A row's states before and after a change, and its partition's state before it.

    `partition` is the decoded content of `around`.
    """

    before: bytes | None
    after: bytes | None
    around: bytes | None
    partition: State | None
    coverage: Coverage

    def of(self, row: "Row", state: bytes | None) -> object:
        """Return everything that determines an image of *row* in a state, except the time."""
        return row.shape, row.row, row.partition, state, self.around, self.coverage

    def changes(self, *, is_simple: bool) -> bool:
        """Return whether the content of the state differs after the change.

        A change *is_simple* without ranges, and if it wrote no collection or UDT cell by cell.
        """
        if self.after is None or self.after == self.before:
            return False
        # A state made from a snapshot may have other bytes for the same content.
        is_folded = self.before is None or (is_simple and _FOLDED in self.before[:_HEAD_BYTES])
        return is_folded or state_of(self.after) != state_of(self.before)


class Image(msgspec.Struct, frozen=True, gc=False):
    """An image `of` a row in a state at the second `at_s`, or at any time if that is None.

    `deleted_us` is the last deletion of the whole row.
    """

    of: object
    at_s: int | None
    content: Any  # Any: as rendered by its shape.
    is_whole: bool
    deleted_us: int

    def copied(self) -> Any:  # noqa: ANN401 (as `content`)
        """Return a separate copy of the image for a second event."""
        return self.content.copy() if isinstance(self.content, dict) else self.content


class _Key(NamedTuple):
    """The key that a query wants: by column names, and its bytes if the partition is complete."""

    values: Document
    content: bytes | None


class Row(msgspec.Struct):
    """The row of a change; without `clustering`, the static columns of a partition.

    It `is_derived` if the change is the deletion of a range or a partition that removed the row.
    """

    shape: Shape
    partition: Values
    clustering: Values | None
    row: bytes
    is_derived: bool
    shown: Document | None = None

    def key(self) -> Document:
        """Return the rendered key columns, which must not be modified."""
        if self.shown is None:
            self.shown = self.shape.key(self.partition, self.clustering or [])
        return self.shown

    def has(self, values: Document) -> bool:
        """Return whether key columns have these values, in their JSON form."""
        key = self.shape.json_key(self.partition, self.clustering or [])
        return all(key.get(name) == value for name, value in values.items())

    def image(
        self, state: bytes | None, partition: State | None, at_s: int, coverage: Coverage
    ) -> tuple[Any, bool, int]:
        """Return the columns at *at_s*, whether they are certain, and the last deletion.

        If some may never have been seen, the image has only columns that were seen. The shape's
        reader has read the state.
        """
        deleted_us, is_whole = self.taken(self.shape.reader, state, partition, at_s, coverage)
        of = self.partition, self.clustering
        found = self.shape.image(of, state, partition, deleted_us, at_s, is_whole is not None)
        return found, bool(is_whole), deleted_us

    def taken(
        self,
        reader: StateReader,
        state: bytes | None,
        partition: State | None,
        at_s: int,
        coverage: Coverage,
    ) -> tuple[int, bool | None]:
        """Make *reader* read a state; return its last deletion, and whether it is complete.

        It returns None if some columns may never have been seen. The state is complete if the whole
        row was deleted after the first change, because everything later was seen. The state of a
        row covered by a snapshot is complete unless an older deletion may affect it.
        """
        reader.take(state)
        deleted_us = reader.deleted
        if partition is not None and self.clustering is not None:
            alone = {"deleted": deleted_us}
            deleted_us = deleted_until(self.shape.view, self.clustering, alone, partition)
        if deleted_us >= coverage.since_us:
            return deleted_us, True
        if coverage.seed_us is not None and (coverage.is_seeded or reader.is_marked):
            shown = state_of(state) or EMPTY
            view = self.shape.view
            return deleted_us, not is_doubtful(view, shown, deleted_us, at_s, coverage.seed_us)
        return deleted_us, None
