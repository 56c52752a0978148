"""A history in Cassandra tables. One partition decides; other rows are written earlier.

Changes count up to the last arrival of the head, unless an abandoned attempt wrote them. States are
not versioned: they are written after their commit was decided, each with the number of the attempt
as its time. Until then they are in the journal.
"""

import contextlib
import heapq
import itertools
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

import msgspec

from headrace.connector.foundation import crash
from headrace.connector.history import arrival
from headrace.connector.history.errors import HistoryBusyError, HistoryFileError
from headrace.connector.history.reading import document_of
from headrace.connector.history.rendering import Shape
from headrace.connector.history.store.contract import (
    GONE,
    PARTITION,
    Change,
    Columns,
    Epoch,
    HistoryPart,
    Name,
    Range,
    Seed,
)
from headrace.connector.history.store.deciding import Deciding
from headrace.connector.history.store.head import (
    SKEW_MS,
    EpochRow,
    Head,
    SchemaRow,
    SeedRow,
    Snapshot,
    Window,
    Writer,
    window_ms_for,
)
from headrace.connector.history.store.journal import Journal
from headrace.connector.history.store.rows import (
    ALL,
    DAY_SECONDS,
    Expiry,
    HistoryRows,
    Left,
    Part,
    State,
)
from headrace.connector.history.store.singles import Singles
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.cassandra.session import CassandraSession
from headrace.connector.stores.cassandra.values import CassandraValues
from headrace.connector.stores.keyed.rows import pack, plain, unpack
from headrace.plugins import Clock, Origin, RecordSchema
from headrace.plugins.stores.key_values import Key

BUSY_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 0.25
ENDED_MAX: Final = 100  # Windows whose rows one commit removes.
LOOK_UP_MAX: Final = 200  # Due rows that are looked up together.


@dataclass(slots=True)
class _Work:
    """The rows that a commit writes in addition to its snapshot."""

    attempt: int
    changes: dict[Part, list[Change]] = field(default_factory=dict)
    states: dict[Name, State] = field(default_factory=dict)
    gone: set[Expiry] = field(default_factory=set)
    journal: Mapping[Key, bytes] = field(default_factory=dict)
    plain: dict[Key, bytes] = field(default_factory=dict)
    replaced: list[Key] = field(default_factory=list)


class HistoryTables(HistoryPart):
    """An open history in tables, as described for `HistoryStore`."""

    def __init__(
        self, session: CassandraSession, name: str, clock: Clock, close: Callable[[], None]
    ) -> None:
        """Open an existing history. *close* is called at its end, but not if this raises.

        Raises:
            HistoryMissingError: a history of this name does not exist.
            HistoryBusyError: the cluster does not answer.

        """
        self._values = CassandraValues(session)
        self._rows = HistoryRows(session)
        self._journal = Journal(self._values)
        self._singles = Singles(self.schemas)
        self._deciding = Deciding(self._values, name, clock)
        self._clock = clock
        self._close = close
        self.place = self._deciding.place
        self._snapshot: Snapshot | None = None  # Within a block.
        self._work: _Work | None = None
        self._known: dict[Name, State] = {}  # States that the block has read.
        self._unapplied: Mapping[Name, State] | None = None  # From the journal, for the block.
        self._applied = 0  # The attempt whose states are certainly written.
        self._schemas: dict[str, RecordSchema] = {}
        self._shapes: dict[int, Shape] = {}
        with self._errors():
            head = self._deciding.load().head
        self.table, self.buckets = head.table, head.buckets

    @classmethod
    def made(  # noqa: PLR0913 (what a history is made with)
        cls,
        session: CassandraSession,
        name: str,
        clock: Clock,
        close: Callable[[], None],
        *,
        table: str,
        buckets: int,
        retention_ms: int,
    ) -> "HistoryTables":
        """Open a history, and make it first if it does not exist. Raises as the constructor.

        Raises:
            HistoryFileError: it is of another table, or has other buckets.

        """
        deciding = Deciding(CassandraValues(session), name, clock)
        with _named_errors(deciding.place):
            if not deciding.exists():
                HistoryRows(session).make()
                of = f"{name}.{secrets.token_hex(4)}"
                deciding.create(
                    Head(
                        table=table,
                        buckets=buckets,
                        name=of,
                        states=f"{of}.0",
                        window_ms=window_ms_for(retention_ms),
                        retention_ms=retention_ms,
                    )
                )
        found = cls(session, name, clock, close)
        if (found.table, found.buckets) != (table, buckets):
            raise HistoryFileError(
                f"is the history of {found.table} in {found.buckets} buckets, expected {table} in "
                f"{buckets}",
                place=found.place,
                hint="neither can be changed: give the history another `path`",
            )
        return found

    def close(self) -> None:
        """Close the history, as described for `HistoryStore.close`."""
        close, self._close = self._close, _nothing
        close()

    def purge(self) -> None:
        """Remove the history, as for `HistoryStore.purge`. Its head goes last: repeatable."""
        with self._errors():
            now = self._deciding.load()
            name = now.head.name
            self._rows.drop_changes(
                [Part(name, w, bucket) for w in now.windows for bucket in range(self.buckets)]
            )
            left: Left | None = ALL
            while left is not None:
                left = self._rows.drop_states(f"{name}.", but="", left=left)
            gone = [self._schema_key(name, each) for each in now.head.schemas]
            for split, writer in now.writers.items():
                gone += [_entry_key(name, split, row) for row in writer.entries.values()]
            self._values.put(dict.fromkeys(gone))
            self._deciding.remove(now)
        self.close()

    @contextlib.contextmanager
    def writing(self, split: str = "", *, begins: bool = False) -> Iterator[None]:
        """Write, as described for `HistoryStore.writing`."""
        with self._exclusive(split, begins=begins, seconds=BUSY_SECONDS):
            yield

    @contextlib.contextmanager
    def settling(self) -> Iterator[None]:
        """Write for a reader, as described for `HistoryPart.settling`."""
        with self._exclusive("", begins=False, seconds=SETTLE_SECONDS):
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read one snapshot, as described for `HistoryStore.reading`."""
        with self._errors():
            self._snapshot = self._deciding.load()
            try:
                yield
            finally:
                self._leave()

    @contextlib.contextmanager
    def _exclusive(self, split: str, *, begins: bool, seconds: float) -> Iterator[None]:
        with self._errors():
            now = self._deciding.begin(split, begins=begins, seconds=seconds)
            before, work = now.rows(), _Work(now.head.attempts)
            self._snapshot = now
            try:
                self._recover(now.head)
                self._work = work
                yield
                self._write(now, work)
                crash.reached("history_rows")
                self._deciding.decide(now, before, work.replaced)
            except BaseException:
                self._deciding.give_up(work.attempt)
                raise
            finally:
                self._leave()
            crash.reached("history_decided")
            with contextlib.suppress(StoreUnavailableError):  # The next commit repeats it.
                self._apply(now.head, work)

    def _leave(self) -> None:
        self._snapshot = self._work = self._unapplied = None
        self._known = {}

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _named_errors(self.place)

    def _now(self) -> Snapshot:
        if self._snapshot is not None:
            return self._snapshot
        with self._errors():
            return self._deciding.load()

    def _writing(self) -> tuple[Snapshot, _Work]:
        assert self._snapshot is not None  # noqa: S101 (the caller is within `writing`)
        assert self._work is not None  # noqa: S101 (as above)
        return self._snapshot, self._work

    # The rows of a commit, in addition to those that decide.

    def _write(self, now: Snapshot, work: _Work) -> None:
        """Write rows that readers do not count before the decision."""
        head = now.head
        if work.changes:
            seconds = {part: self._counted(now, part, of) for part, of in work.changes.items()}
            self._rows.put_changes(work.changes, work.attempt, seconds, self._document)
        if work.states:
            expiries = [(name, s.expires) for name, s in work.states.items() if s.expires]
            self._rows.put_expiries(head.states, expiries, work.attempt)
            work.journal = self._journal.rows(head.name, work.attempt, work.states)
            work.plain |= work.journal
            head.unapplied = work.attempt
        self._values.put(work.plain)
        if head.removing is not None:  # Some with each commit, from where the last one stopped.
            with contextlib.suppress(StoreUnavailableError):  # The commit does not need it.
                head.removing = self._rows.drop_states(
                    f"{head.name}.", but=head.states, left=head.removing
                )

    def _document(self, change: Change) -> str:
        """Return a change as `cqlsh` shows it; readers do not use it."""
        if change.schema not in self._shapes:
            self._shapes[change.schema] = Shape(self.schemas()[change.schema])
        # They may be bytearrays.
        key, row, content = map(bytes, (change.key, change.row, change.change))
        whole = msgspec.structs.replace(change, key=key, row=row, change=content)
        shown = document_of(self._shapes[change.schema], whole)
        return msgspec.json.encode(shown).decode()

    def _counted(self, now: Snapshot, part: Part, changes: Sequence[Change]) -> int:
        """Record changes in their window; return their lifetime in seconds."""
        head = now.head
        ends_ms = part.window_ms + head.window_ms + head.retention_ms
        first, last = changes[0].arrival, changes[-1].arrival
        window = now.windows.setdefault(part.window_ms, Window(first, last, 0, 0, 0, ends_ms))
        window.first, window.last = min(window.first, first), max(window.last, last)
        window.count += len(changes)
        window.size_bytes += sum(len(each.change) for each in changes)
        written = (each.arrival for each in changes if each.operation < GONE)
        window.written = max(window.written, max(written, default=0))
        window.ends_ms = min(window.ends_ms, ends_ms)
        return max(1, ends_ms + SKEW_MS - self._clock.wall_ms()) // 1_000 + 1

    def _apply(self, head: Head, work: _Work) -> None:
        """Write the states of a decided commit."""
        if work.states:
            self._rows.put_states(head.states, work.states, work.attempt)
            self._applied = work.attempt
            self._values.put(dict.fromkeys(work.journal))
        self._rows.drop_expiries(head.states, work.gone, work.attempt)

    def _recover(self, head: Head) -> None:
        """Write the states of the last commit with states, unless that was already done."""
        if head.unapplied in (0, self._applied):
            return
        if states := self._journal.read(head.name, head.unapplied):
            self._rows.put_states(head.states, states, head.unapplied)
            self._journal.drop(head.name, head.unapplied)
        self._applied = head.unapplied

    # The clock.

    def can_write(self) -> bool:
        """Return True, as only the cluster can say; see `HistoryPart.can_write`."""
        return True

    def version(self) -> int:
        """Return the version, as described for `HistoryStore.version`."""
        with self._errors():
            return self._deciding.version()

    def last(self) -> int:
        """Return the last arrival, as described for `HistoryStore.last`."""
        return self._now().head.last

    def settle(self, until_ms: int) -> None:
        """Settle, as described for `HistoryStore.settle`."""
        with self._errors():
            self._deciding.settle(until_ms, seconds=SETTLE_SECONDS)

    def _ended(self, now: Snapshot) -> list[int]:
        now_ms = self._clock.wall_ms()
        return sorted(begin for begin, each in now.windows.items() if each.ends_ms <= now_ms)

    def floor(self) -> int:
        """Return the floor, as described for `HistoryStore.floor`."""
        now = self._now()
        ends = (arrival.first_of(each + now.head.window_ms) for each in self._ended(now))
        return max(ends, default=0) or now.head.floor

    def removed(self) -> int:
        """Return the last removed arrival, as described for `HistoryStore.removed`."""
        now = self._now()
        found = (now.windows[each].written for each in self._ended(now))
        return max(now.head.removed, max(found, default=0))

    def retain(self, retention_ms: int, now_ms: int, appended: int) -> None:
        """Remove whole windows when all of it is too old, as for `HistoryPart.retain`."""
        del now_ms, appended
        now, _ = self._writing()
        head = now.head
        head.retention_ms = retention_ms
        for begin_ms in self._ended(now)[:ENDED_MAX]:
            window = now.windows.pop(begin_ms)
            head.floor = max(head.floor, arrival.first_of(begin_ms + head.window_ms))
            head.removed = max(head.removed, window.written)
        head.abandoned = [each for each in head.abandoned if arrival.first_of(each[1]) > head.floor]

    def _windows(self, now: Snapshot) -> list[Window]:
        """Return the windows that have not ended, in order."""
        ended = frozenset(self._ended(now))
        return [now.windows[begin] for begin in sorted(now.windows) if begin not in ended]

    def extent(self) -> tuple[int, int, int]:
        """Return the extent, as described for `HistoryStore.extent`."""
        kept = self._windows(self._now())
        if not kept:
            return 0, 0, 0
        return kept[0].first, kept[-1].last, sum(each.count for each in kept)

    def size_behind(self, behind: int) -> int:
        """Return a size, as described for `HistoryStore.size_behind`."""
        kept = self._windows(self._now())
        size = sum(each.size_bytes for each in kept if each.first > behind)
        for each in kept:
            if each.first <= behind < each.last:
                size += sum(len(c.change) for c in self.changes(Range(behind + 1, each.last + 1)))
        return size

    # What is kept, since when.

    def origin(self) -> Origin:
        """Return the origin, as described for `HistoryStore.origin`."""
        return self._now().head.origin

    def keep_origin(self, origin: Origin) -> None:
        """Store the origin, as described for `HistoryStore.keep_origin`."""
        with self.writing():
            now, _ = self._writing()
            now.head.origin = origin

    def epochs(self) -> list[Epoch]:
        """Return the epochs, as described for `HistoryStore.epochs`."""
        found = self._now().head.epochs
        return [Epoch(e.since, frozenset(e.scopes), e.states_since_us) for e in found]

    def keep_epoch(self, epoch: Epoch, *, keeps_states: bool) -> None:
        """Store an epoch, as for `HistoryPart.keep_epoch`; removed states keep their old name."""
        now, work = self._writing()
        head = now.head
        row = EpochRow(epoch.since, sorted(epoch.scopes), epoch.states_since_us)
        had_states = any(each.states_since_us is not None for each in head.epochs)
        head.epochs = [each for each in head.epochs if each.since != epoch.since] + [row]
        if not keeps_states:
            head.states = f"{head.name}.{work.attempt}"
            head.has_partitions, head.expiry_day = False, 0
            head.removing = ALL if had_states else None
            work.states = {}

    def seed(self, states_since_us: int | None) -> Seed | None:
        """Return a seed, as described for `HistoryStore.seed`."""
        found = (e.seed for e in self._now().head.seeds if e.states_since_us == states_since_us)
        return next(found, None)

    def keep_seed(self, states_since_us: int | None, seed: Seed) -> None:
        """Store a seed, as described for `HistoryPart.keep_seed`."""
        now, _ = self._writing()
        others = [e for e in now.head.seeds if e.states_since_us != states_since_us]
        now.head.seeds = [*others, SeedRow(states_since_us, seed)]

    # Writers.

    def writer(self, split: str) -> int:
        """Return a writer's epoch, as described for `HistoryStore.writer`."""
        return self._now().writers.get(split, Writer()).epoch

    def set_writer(self, split: str, epoch: int) -> None:
        """Store a writer's epoch, as described for `HistoryStore.set_writer`."""
        now, _ = self._writing()
        now.writers.setdefault(split, Writer()).epoch = epoch

    def entries(self, split: str) -> dict[str, bytes]:
        """Return entries, as described for `HistoryStore.entries`."""
        now = self._now()
        names = now.writers.get(split, Writer()).entries
        keys = {name: _entry_key(now.head.name, split, row) for name, row in names.items()}
        with self._errors():
            found = self._values.read(keys.values())
        return {name: found[key].value for name, key in keys.items() if key in found}

    def keep_entries(self, split: str, entries: Mapping[str, bytes | None]) -> None:
        """Store entries as rows that are written once, as for `HistoryStore.keep_entries`."""
        now, work = self._writing()
        writer = now.writers.setdefault(split, Writer())
        for name, value in entries.items():
            if name in writer.entries:
                known = writer.entries.pop(name)
                work.replaced.append(_entry_key(now.head.name, split, known))
            if value is not None:
                row = writer.entries[name] = f"{work.attempt}/{name}"
                work.plain[_entry_key(now.head.name, split, row)] = value

    # Changes.

    def append(self, columns: Columns, now_ms: int) -> None:
        """Append changes, as described for `HistoryPart.append`."""
        now, work = self._writing()
        first = self.next_arrival(now_ms)
        head, of, empty = now.head, columns, [b""] * len(columns)
        found = zip(
            itertools.count(first),
            of.schemas,
            of.operations,
            of.written_us,
            of.keys,
            of.rows or empty,
            of.changes,
            of.befores or empty,
            strict=False,
        )
        for at, schema, operation, written_us, key, name, change, before in found:
            bucket = crc32(key) % self.buckets
            row = schema, operation, written_us, key, name, change
            part = Part(head.name, head.window_of(at), bucket)
            work.changes.setdefault(part, []).append(Change(at, bucket, *row, before or None))
            head.last = at

    def changes(
        self, wanted: Range, *, descending: bool = False, count_max: int = -1
    ) -> Iterator[Change]:
        """Yield changes, as described for `HistoryStore.changes`."""
        found = self._matching(wanted, descending=descending, whole=True)
        return itertools.islice(found, None if count_max < 0 else count_max)

    def count(self, wanted: Range) -> int:
        """Count changes, as described for `HistoryStore.count`."""
        return sum(1 for _ in self._matching(wanted, descending=False, whole=False))

    def cuts(self, wanted: Range, size: int) -> list[int]:
        """Return cuts, as described for `HistoryStore.cuts`."""
        found = self._matching(wanted, descending=False, whole=False)
        return [each.arrival for n, each in enumerate(found) if n and n % size == 0]

    def _matching(self, wanted: Range, *, descending: bool, whole: bool) -> Iterator[Change]:
        """Yield changes window by window, with those of its buckets merged in order."""
        now = self._now()
        head = now.head
        end = min(wanted.end, head.last + 1)
        buckets = set(wanted.buckets or range(self.buckets))
        if wanted.key is not None:
            buckets &= {crc32(wanted.key) % self.buckets}
        given_up = {attempt for attempt, _ in head.abandoned}
        kept = self._windows(now)
        for window in reversed(kept) if descending else kept:
            if window.last < wanted.begin or window.first >= end:
                continue
            begin_ms = head.window_of(window.first)
            parts = [Part(head.name, begin_ms, bucket) for bucket in sorted(buckets)]
            streams = self._rows.changes(
                parts, wanted.begin, end, descending=descending, whole=whole
            )
            for attempt, change in heapq.merge(
                *streams, key=lambda each: each[1].arrival, reverse=descending
            ):
                if attempt not in given_up and _is_wanted(change, wanted):
                    yield change

    # States.

    def has_partitions(self) -> bool:
        """Check for partitions, as described for `HistoryStore.has_partitions`."""
        return self._now().head.has_partitions

    def states(self, names: Sequence[Name]) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield states, as described for `HistoryStore.states`."""
        for name, found in self._states(names):
            yield *name, self._singles.folded(found.state)

    def _states(self, names: Sequence[Name]) -> Iterator[tuple[Name, State]]:
        head = self._now().head
        newer = self._newer(head)
        with self._errors():
            found = dict(self._rows.states(head.states, [n for n in names if n not in newer]))
        for name in names:
            state = newer.get(name) or found.get(name)
            if state is not None:
                self._known[name] = state
                yield name, state

    def _newer(self, head: Head) -> Mapping[Name, State]:
        """Return states that may not yet be in their table."""
        if self._work is not None:
            return self._work.states
        if self._unapplied is None or self._snapshot is None:
            is_applied = head.unapplied in (0, self._applied)
            with self._errors():
                found = {} if is_applied else self._journal.read(head.name, head.unapplied)
            self._unapplied = found
        return self._unapplied

    def states_of(self, key: bytes) -> list[tuple[bytes, bytes]]:
        """Return a partition's states, as described for `HistoryPart.states_of`."""
        head = self._now().head
        newer = {row: state for (of, row), state in self._newer(head).items() if of == key}
        with self._errors():
            found = dict(self._rows.states_of(head.states, key)) | newer
        return [(row, self._singles.folded(state.state)) for row, state in found.items()]

    def keep_states(self, states: dict[Name, bytes], expiries: dict[Name, int]) -> None:
        """Store states, as described for `HistoryPart.keep_states`."""
        now, _ = self._writing()
        for name, state in states.items():
            self._keep(name, State(state, expiries.get(name, 0)))
            now.head.has_partitions |= name[1] == PARTITION

    def _keep(self, name: Name, state: State) -> None:
        now, work = self._writing()
        head, known = now.head, self._known.get(name)
        if known is not None and known.expires not in (0, state.expires):
            work.gone.add((name, known.expires))
        if state.expires:
            day = state.expires // DAY_SECONDS
            head.expiry_day = min(head.expiry_day or day, day)
            work.gone.discard((name, state.expires))
        work.states[name] = self._known[name] = state

    def due(self, until_s: int, count_max: int) -> list[tuple[bytes, bytes, bytes, int]]:
        """Return due states, as for `HistoryPart.due`. Outdated entries are removed."""
        head = self._now().head
        found: list[tuple[bytes, bytes, bytes, int]] = []
        first, last = head.expiry_day, until_s // DAY_SECONDS
        for day in range(first, last + 1) if first else ():
            noted = self._rows.expiries(head.states, day, until_s)
            is_empty = True
            while part := list(itertools.islice(noted, LOOK_UP_MAX)):
                is_empty = False
                states = dict(self._states([name for name, _ in part]))
                for name, at_s in part:
                    state = states.get(name)
                    if state is not None and state.expires == at_s:
                        found.append((*name, self._singles.folded(state.state), at_s))
                    elif self._work is not None:
                        self._work.gone.add((name, at_s))
                    if len(found) == count_max:
                        return found
            if is_empty and day == head.expiry_day < last:
                head.expiry_day += 1  # Within a commit, for all readers.
        return found

    def set_expiries(self, expiries: Mapping[Name, int]) -> None:
        """Set expiries, as described for `HistoryPart.set_expiries`."""
        for name, at_s in expiries.items():
            self._keep(name, self._known[name]._replace(expires=at_s))

    # Schemas.

    def schemas(self) -> dict[int, RecordSchema]:
        """Return the schemas, as described for `HistoryStore.schemas`."""
        head = self._now().head
        keys = {n: self._schema_key(head.name, n) for n in head.schemas if n not in self._schemas}
        with self._errors():
            found = self._values.read(keys.values()) if keys else {}
        for name, key in keys.items():
            row = unpack(SchemaRow, key, found[key], self._values)
            shapes = json.loads(row.key), json.loads(row.value)
            self._schemas[name] = RecordSchema(row.table, row.text, row.schema_id, *shapes)
        return {number: self._schemas[name] for number, name in enumerate(head.schemas, start=1)}

    def schema_number(self, schema: RecordSchema) -> int:
        """Return a schema's number, as described for `HistoryStore.schema_number`."""
        now, work = self._writing()
        name = schema.schema_id.hex()
        known = now.head.schemas
        if name not in known:
            known.append(name)
            shapes = json.dumps(schema.key), json.dumps(schema.value)
            row = SchemaRow(schema.table, schema.text, schema.schema_id, *shapes)
            work.plain[self._schema_key(now.head.name, name)] = pack(row)
            self._schemas[name] = schema
        return known.index(name) + 1

    @staticmethod
    def _schema_key(history: str, name: str) -> Key:
        return Key(plain("history schemas", history), name)


def _entry_key(history: str, split: str, row: str) -> Key:
    return Key(plain("history entries", history, split), row)


def _is_wanted(change: Change, wanted: Range) -> bool:
    return (
        (not wanted.operations or change.operation in wanted.operations)
        and (wanted.written_from_us is None or change.written_us >= wanted.written_from_us)
        and (wanted.written_to_us is None or change.written_us < wanted.written_to_us)
        and (wanted.key is None or change.key == wanted.key)
    )


@contextlib.contextmanager
def _named_errors(place: str) -> Iterator[None]:
    try:
        yield
    except StoreUnavailableError as error:
        hint = "look at the nodes of the cluster that keeps it"
        raise HistoryBusyError(error.message, place=place, hint=hint) from error


def _nothing() -> None:
    """Do nothing, because the history is closed."""
