"""Answers queries of a history: the changes of a range of arrivals, in their order.

A change is rendered when it is asked for, from its bytes and the states that it found. What a
query reported as final stays final: before it reads, it has the clock of the history pass the
end of its range, so nothing arrives there any more.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

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
    operation_of,
    state_of,
    unpacked,
)
from headrace.connector.history.query import Event, Page, Place, Query
from headrace.connector.history.rendering import EMPTY, Shape, newest_us
from headrace.connector.history.store.contract import (
    GONE,
    PARTITION,
    Change,
    Epoch,
    HistoryStore,
    Range,
    Seed,
)
from headrace.connector.rows.folding import NEVER, State
from headrace.connector.rows.snapshots import MARK, is_doubtful
from headrace.connector.serde.image_fields import POST, PRE
from headrace.plugins import Clock, Document, Operation, Problem, RecordSchema
from headrace.plugins.records.record import OPERATIONS

_LATER: Final = 1 << 62
_IMAGES: Final = frozenset((PRE, POST, LATEST))
_LATEST: Final = frozenset((LATEST,))
_NO_IMAGES: Final = frozenset[str]()
_WRITTEN: Final = frozenset(range(GONE))


class History:
    """A history that is read; for one thread at a time."""

    def __init__(
        self,
        file: HistoryStore,
        include: frozenset[str],
        clock: Clock,
        shape_of: Callable[[RecordSchema], Shape] = Shape,
    ) -> None:
        """Read *file*, which `close` closes; queries get *include* unless they say otherwise.

        *shape_of* makes what renders the changes of a schema: as JSON, unless it is given.
        """
        self.file = file
        self.include = include
        self.clock = clock
        self._shape_of = shape_of
        self._expiries = Expiries(file)
        self._shapes: dict[int, Shape] = {}
        # What the last change left: mostly its row's next change finds the same.
        self._state: tuple[bytes | None, State | None] = (None, None)
        self._image: tuple[object, Document, bool] = (None, {}, False)
        self._seeds: list[tuple[Epoch, Seed | None]] = []  # As of the query.

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self.file.close()

    def key_columns(self) -> list[str]:
        """Return the columns of the primary key; none, as long as there is no change."""
        schemas = self.file.schemas()
        if not schemas:
            return []
        view = self.shape(max(schemas)).view
        return [view.names[name] for name in (*view.key, *view.clustering)]

    def select(self, query: Query, *, settles: bool = True) -> Page:
        """Return the first `limit` events of a query, and how to continue.

        Unless it *settles* the range up to now, or where a commit is under way, the answer ends
        behind the last commit.

        Raises:
            HistoryTruncatedError: changes from the beginning of its range were removed.
            ImageNotKeptError: it wants images of a time in which they were not kept.
            QueryError: it does not fit the history's table.
            HistoryBusyError: another process kept the file locked.

        """
        may_come = self._settled(query) if settles else self.file.last() + 1
        scopes = self.scopes_of(query)
        begin, end = _range(query, may_come)
        with self.file.reading():
            self._look_up_epochs()
            self._check(begin, end, scopes)
            events, more = self._events(query, scopes, begin, end)
        token = Place(events[-1].arrival, query.descending).token() if more else ""
        return Page(events=events, token=token, may_come=may_come)

    def pages(self, query: Query, *, settles: bool = True) -> Iterator[Page]:
        """Yield all pages of a query. Each is read when it is asked for; raises as `select`.

        What is committed after the first page is in none.
        """
        while True:
            page = self.select(query, settles=settles)
            yield page
            if not page.token:
                return
            query = replace(query, after=page.token, until=query.until or page.may_come)

    def fixed(self, query: Query) -> Query:
        """Return the query of what is there now: it returns the same whenever it is asked.

        Raises as `select`.
        """
        begin, end = _range(query, self._settled(query))
        self._key(query.key)
        with self.file.reading():
            self._look_up_epochs()
            self._check(begin, end, self.scopes_of(query))
        return replace(query, until=end)

    def count(self, query: Query) -> int:
        """Return how many changes a `fixed` query has, with those of `divided`."""
        wanted = _wanted(query, *_range(query, 0), self._key(query.key))
        with self.file.reading():
            return self.file.count(wanted)

    def divided(self, query: Query, size: int) -> list[Query]:
        """Return queries of the parts of a `fixed` one, in its order: each of *size* changes.

        Where the whole partition key is not given, changes of other keys count, too. Raises as
        `select`.
        """
        begin, end = _range(query, 0)
        with self.file.reading():
            self._look_up_epochs()
            self._check(begin, end, self.scopes_of(query))
            cuts = self.file.cuts(_wanted(query, begin, end, self._key(query.key)), size)
        tokens = [query.after, *(Place(cut - 1, descending=False).token() for cut in cuts)]
        return [
            replace(query, after=token, until=until)
            for token, until in zip(tokens, [*cuts, query.until], strict=True)
        ]

    def scopes_of(self, query: Query) -> frozenset[str]:
        """Return what the events of a query have."""
        return self.include if query.scopes is None else query.scopes

    def _look_up_epochs(self) -> None:
        epochs = self.file.epochs()
        self._seeds = [(each, self.file.seed(each.states_since_us)) for each in epochs]

    def _settled(self, query: Query) -> int:
        """Return the first arrival that may still come, if possible none in the query's past."""
        now_ms = self.clock.wall_ms()
        with contextlib.suppress(HistoryBusyError):  # What it commits is not final yet.
            self.append_due(now_ms)
            self.file.settle(now_ms if query.to_ms is None else min(query.to_ms, now_ms))
        return self.file.last() + 1

    def append_due(self, now_ms: int) -> None:
        """Have all that expired by *now_ms* arrive, if this process may write.

        Raises:
            HistoryBusyError: a commit is under way; what is left arrives with it, or later.

        """
        while self.file.can_write() and self._expiries.is_due(now_ms):
            with self.file.settling():
                self._expiries.append(now_ms)

    def _check(self, begin: int, end: int, scopes: frozenset[str]) -> None:
        """Refuse a range of which changes were removed, or images were not kept."""
        floor = self.file.floor()
        if begin < floor and begin < end:
            raise _truncated("cdc_time", floor)
        self._check_kept(begin, end, scopes)
        epochs = [epoch for epoch, _ in self._seeds]
        if epochs and LATEST in scopes - epochs[-1].scopes:
            raise ImageNotKeptError([_not_kept(LATEST, epochs[-1].since, _LATER)])

    def _check_kept(self, begin: int, end: int, scopes: frozenset[str]) -> None:
        """Refuse a range in which images were not kept."""
        epochs = [epoch for epoch, _ in self._seeds]
        ends = (*(epoch.since for epoch in epochs[1:]), _LATER)
        for epoch, until in zip(epochs, ends, strict=False):  # None, if it was made just now.
            missing = scopes - epoch.scopes
            if missing and max(begin, epoch.since) < min(end, until):
                raise ImageNotKeptError([_not_kept(min(missing), epoch.since, until)])

    def _events(
        self, query: Query, scopes: frozenset[str], begin: int, end: int
    ) -> tuple[list[Event], bool]:
        """Return up to `limit` events, and whether there are more."""
        wanted = self._key(query.key)
        found: list[tuple[Event, Change, Row]] = []
        more = False
        asked = _wanted(query, begin, end, wanted)
        for change in self.file.changes(asked, descending=query.descending):
            value = None
            if change.operation < GONE:
                value = self.shape(change.schema).read(change.change)
            row = self.row_of(change, value)
            if wanted.values and not row.has(wanted.values):
                continue
            if more := len(found) == query.limit:
                break
            found.append((self._event(change, row, value, scopes), change, row))
        if found and LATEST in scopes:
            return self._with_latest(found), more
        return [event for event, _, _ in found], more

    def _key(self, values: Document) -> "_Key":
        """Return what changes of this key have. Raises QueryError."""
        schemas = self.file.schemas() if values else {}
        if not schemas:
            return _Key(values, None)
        names = self.key_columns()
        unknown = [name for name in values if name not in names]
        if unknown:
            hint = f"columns of the primary key are {', '.join(names)}"
            raise QueryError([Problem(name, "cannot be compared", hint) for name in unknown])
        return _Key(values, self.shape(max(schemas)).key_bytes(values))

    def changes(self, behind: int, scopes: frozenset[str], count_max: int) -> "list[Change]":
        """Return the next changes that arrived later than *behind*, in their order.

        They are those that were written, without what expired.

        Raises:
            HistoryTruncatedError: changes in between were removed.
            ImageNotKeptError: *scopes* has an image that was not kept for all of them.
            HistoryBusyError: another process kept the file locked.

        """
        with self.file.reading():
            if behind < self.file.removed():
                raise _truncated("position", self.file.floor())
            wanted = Range(behind + 1, _LATER, operations=_WRITTEN)
            found = list(self.file.changes(wanted, count_max=count_max))
            if found:
                self._look_up_epochs()
                self._check_kept(found[0].arrival, found[-1].arrival + 1, scopes)
            return found

    def shape(self, number: int) -> Shape:
        """Return what renders the changes of a schema, by its number."""
        if number not in self._shapes:
            self._shapes |= {n: self._shape_of(schema) for n, schema in self.file.schemas().items()}
        return self._shapes[number]

    def row_of(self, change: "Change", value: Document | None) -> "Row":
        """Return what a change with this *value* is about; what expired has none."""
        return row_of(self.shape(change.schema), change, value)

    def past_of(self, change: "Change", row: "Row") -> "Past":
        """Return the states before and after a change, whose images were kept."""
        assert change.before is not None  # noqa: S101 (`_check_kept` has looked)
        before, partition = unpacked(change.before)
        content, state = self._state
        if content != before:
            state = state_of(before)
        made = before
        if change.operation < GONE:
            made = None if row.is_derived else row.shape.folded(before, change.change)
        self._state = made, state_of(made)
        return Past(
            before=state,
            after=self._state[1],
            partition=state_of(partition),
            coverage=self._coverage(change.arrival),
        )

    def _event(
        self,
        stored: "Change",
        row: "Row",
        value: Document | None,
        scopes: frozenset[str],
    ) -> Event:
        operation = KEPT[stored.operation]
        # What a deletion of many rows removed are events of their own.
        images = _NO_IMAGES if operation in WIDE else scopes & _IMAGES
        past = self._past_images(stored, row, value, images) if images - _LATEST else {}
        return Event(
            arrival=stored.arrival,
            partition_id=stored.bucket,
            key=row.shape.key(row.partition, row.clustering or []),
            operation=operation,
            written_us=stored.written_us,
            change=row.shape.change(value)
            if value is not None and CHANGE in scopes and not row.is_derived
            else None,
            derived=row.is_derived,
            static=stored.row == PARTITION if value is None else value["isStatic"],
            expired=value is None,
            **past,
        )

    def _past_images(
        self, stored: "Change", row: "Row", value: Document | None, images: frozenset[str]
    ) -> dict[str, Any]:
        """Return what an event has of the images before and behind it; *value* is what it wrote."""
        past = self.past_of(stored, row)
        before_s = at_s = arrival.ms_of(stored.arrival) // 1_000
        if value is None:
            at_s = stored.written_us // 1_000_000
            before_s = at_s - 1
        of = stored.schema, stored.key, stored.row, past.partition, past.coverage
        known, pre, is_whole = self._image
        if known == (past.before, before_s, *of):
            pre = dict(pre)
        else:
            pre, is_whole = row.image(past.before, past.partition, before_s, past.coverage)
        post = None
        if KEPT[stored.operation] is not Operation.DELETE:
            post, is_known = row.image(past.after, past.partition, at_s, past.coverage)
            self._image = (past.after, at_s, *of), post, is_known
            is_whole = is_whole and is_known
        return {
            "pre": pre if PRE in images else None,
            "post": post if POST in images else None,
            "effective": row.is_derived or value is None or row.wins(value, past),
            "partial": not is_whole,
        }

    def _with_latest(self, found: Sequence[tuple[Event, Change, "Row"]]) -> list[Event]:
        """Return events with the newest images of their rows, whose states are read together."""
        now_s, coverage = self.clock.wall_ms() // 1_000, self._coverage(_LATER)
        names = {(of.key, of.row) for _, of, _ in found}
        if self.file.has_partitions():
            names |= {(key, PARTITION) for key, _ in names}
        states = {(key, row): content for key, row, content in self.file.states(sorted(names))}
        made = []
        for event, of, row in found:
            if event.operation in WIDE:  # What it removed are events of their own.
                made.append(event)
                continue
            partition = None if of.row == PARTITION else state_of(states.get((of.key, PARTITION)))
            state = state_of(states.get((of.key, of.row)))
            latest, is_whole = row.image(state, partition, now_s, coverage)
            partial = event.partial or not is_whole
            made.append(replace(event, latest=latest, partial=partial))
        return made

    def _coverage(self, at: int) -> "Coverage":
        """Return what the states that a change at *at* found have of what was before."""
        epoch, seed = next(each for each in reversed(self._seeds) if each[0].since <= at)
        assert epoch.states_since_us is not None  # noqa: S101 (`_check_kept` has looked)
        if seed is None:
            return Coverage(epoch.states_since_us)
        is_done = seed.done is not None and at >= seed.done
        return Coverage(epoch.states_since_us, seed.begun_us, is_seeded=is_done)


def row_of(shape: Shape, change: Change, value: Document | None) -> "Row":
    """Return what a change with this *value* is about; what expired has none."""
    if value is None:
        of_row = None if change.row == PARTITION else clustering_of(change.row)
        return Row(shape, shape.partition(change.key), of_row, change.row, is_derived=False)
    payload, operation = value["payload"], OPERATIONS[change.operation]
    is_derived = operation is not operation_of(value, shape.view)
    clustering: list[Any] | None = None
    if operation not in WIDE and not value["isStatic"]:
        names = shape.view.clustering
        clustering = clustering_of(change.row) if is_derived else [payload[n] for n in names]
    partition = [payload[name] for name in shape.view.key]
    return Row(shape, partition, clustering, change.row, is_derived)


def document_of(shape: Shape, change: Change) -> Document:
    """Return the key of a change, and what it wrote, as JSON has them."""
    value = shape.read(change.change) if change.operation < GONE else None
    row = row_of(shape, change, value)
    made = {"key": shape.key(row.partition, row.clustering or [])}
    written = None if value is None or row.is_derived else shape.change(value)
    return made if written is None else made | {"change": written}


def _range(query: Query, may_come: int) -> tuple[int, int]:
    """Return the first arrival of a query, and the one behind its last."""
    begin, end = arrival.first_of(query.from_ms), query.until or may_come
    if query.to_ms is not None:
        end = min(end, arrival.first_of(query.to_ms))
    if query.after:
        place = Place.of(query.after, descending=query.descending)
        begin, end = (begin, place.arrival) if place.descending else (place.arrival + 1, end)
    return begin, end


def _wanted(query: Query, begin: int, end: int, key: "_Key") -> Range:
    """Return which changes may be events of *query*."""
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
    """What states have: all that was written since `since_us`, and rows of a snapshot.

    The logs have all that was written since `seed_us`. If it `is_seeded`, all rows were read.
    """

    since_us: int
    seed_us: int | None = None
    is_seeded: bool = False


class Past(NamedTuple):
    """The states of a row before and after a change, and that of its partition before it."""

    before: State | None
    after: State | None
    partition: State | None
    coverage: Coverage


class _Key(NamedTuple):
    """The key that a query wants: by names of columns, and the bytes if the partition is whole."""

    values: Document
    content: bytes | None


@dataclass(frozen=True, slots=True)
class Row:
    """The row that a change is about; without `clustering`, the static columns of a partition.

    It `is_derived` if the change is the deletion of a range or a partition that removed the row.
    """

    shape: Shape
    partition: list[Any]
    clustering: list[Any] | None
    row: bytes
    is_derived: bool

    def has(self, values: Document) -> bool:
        """Say whether columns of its key have these values, as JSON has them."""
        key = self.shape.json_key(self.partition, self.clustering or [])
        return all(key.get(name) == value for name, value in values.items())

    def image(
        self, state: State | None, partition: State | None, at_s: int, coverage: Coverage
    ) -> tuple[Document, bool]:
        """Return the columns at *at_s*, and whether they are known for sure.

        Where some may never have been seen, only columns that were seen are in the image.
        """
        shape = self.shape
        if self.row == PARTITION:
            found = shape.static(self.partition, state, at_s)
        else:
            found = shape.row((self.partition, self.clustering or []), state, partition, at_s)
        is_whole = self.is_whole(state, partition, at_s, coverage)
        if is_whole is not None:
            return found or {}, is_whole
        known = shape.known(state)
        return {name: value for name, value in (found or {}).items() if name in known}, False

    def is_whole(
        self, state: State | None, partition: State | None, at_s: int, coverage: Coverage
    ) -> bool | None:
        """Say whether a state has all columns for sure; None if some may never have been seen.

        It has if the whole row was deleted since the first change: all that came later was seen.
        That of a row that a snapshot had, or had not, does unless an older deletion can cover them.
        """
        deleted_us = self._deleted_us(state, partition)
        if deleted_us >= coverage.since_us:
            return True
        if coverage.seed_us is not None and (coverage.is_seeded or MARK in (state or {})):
            shown = state or EMPTY
            return not is_doubtful(self.shape.view, shown, deleted_us, at_s, coverage.seed_us)
        return None

    def wins(self, value: Document, past: Past) -> bool:
        """Say whether a change changed anything of the row."""
        after = past.after
        if after is None or after == past.before:
            return False
        is_deletion = operation_of(value, self.shape.view) is Operation.DELETE
        return is_deletion or newest_us(value) > self._deleted_us(after, past.partition)

    def _deleted_us(self, state: State | None, partition: State | None) -> int:
        if self.row == PARTITION:
            return state["deleted"] if state else NEVER
        return self.shape.deleted_us(self.row, state, partition)
