"""A history in several files: a head, and parts, each of which has some of the buckets.

Each part has its own clock, changes, states and epochs, and is written by itself. The head has what
is one for all: the writer of a split, its position, schemas, and what was decided for each part.
Parts use different milliseconds, so an arrival names one change.
"""

import contextlib
import heapq
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from headrace.connector.history import arrival
from headrace.connector.history.errors import (
    HistoryBusyError,
    HistoryFileError,
    HistoryMissingError,
)
from headrace.connector.history.store.contract import (
    Change,
    Columns,
    Epoch,
    HistoryPart,
    HistoryStore,
    Name,
    Range,
    Seed,
)
from headrace.connector.history.store.file import HistoryFile, make, named_errors, version_of
from headrace.plugins import Origin, RecordSchema

VERSION: Final = 8
_FILES: Final = (
    "CREATE TABLE files (one INTEGER PRIMARY KEY CHECK (one = 1), history TEXT NOT NULL, "
    "number INTEGER NOT NULL, count INTEGER NOT NULL, is_whole INTEGER NOT NULL) STRICT"
)
_DECIDED: Final = (
    "CREATE TABLE decided (split TEXT NOT NULL, part INTEGER NOT NULL, number INTEGER NOT NULL, "
    "content BLOB NOT NULL, PRIMARY KEY (split, part)) STRICT"
)
_TAKEN: Final = (
    "CREATE TABLE taken (split TEXT PRIMARY KEY, number INTEGER NOT NULL) STRICT, WITHOUT ROWID"
)


class Decided(NamedTuple):
    """What a commit of a split has for a part; commits with changes for it count from 1.

    `size_bytes` is 0 when the head has forgotten it, because the part has it.
    """

    split: str
    part: int
    number: int
    size_bytes: int


class PartFile(HistoryFile):
    """One of the files of a history that has several."""

    number = 0
    of = 1
    head: HistoryFile

    def next_arrival(self, now_ms: int) -> int:
        """See `HistoryPart.next_arrival`: in a millisecond that no other part uses."""
        return arrival.next_in_slot(self.last(), now_ms, self.number, self.of)

    def append(self, columns: Columns, now_ms: int) -> None:
        """See `HistoryPart.append`."""
        for begin in range(0, len(columns), arrival.SLOT_MAX):
            super().append(columns.cut(begin, begin + arrival.SLOT_MAX), now_ms)

    def schemas(self) -> dict[int, RecordSchema]:
        """See `HistoryStore.schemas`."""
        return self.head.schemas()

    def schema_number(self, schema: RecordSchema) -> int:
        """Return the number that the head has given the schema."""
        found = self.head.schemas().items()
        return next(number for number, each in found if each.schema_id == schema.schema_id)

    def taken(self, split: str) -> int:
        """Return the number of the last commit of a split that is here; 0, if none is."""
        found = self.run("SELECT number FROM taken WHERE split = ?", (split,))
        return next((int(number) for (number,) in found), 0)

    def has_taken(self, decided: Decided) -> bool:
        """Say whether a commit is here already; its split may have made others since.

        Raises:
            HistoryFileError: it is missing and the head has forgotten it, or one before it is.

        """
        number = self.taken(decided.split)
        if number >= decided.number:
            return True
        if number != decided.number - 1 or not decided.size_bytes:
            raise self.of_another_time(decided, number)
        return False

    def take(self, decided: Decided) -> None:
        """Note that a commit is here. Within `writing`."""
        self.run("INSERT OR REPLACE INTO taken VALUES (?, ?)", (decided.split, decided.number))

    def of_another_time(self, decided: Decided, number: int) -> HistoryFileError:
        """Return the error for a file that is not as old as the head."""
        return HistoryFileError(
            f"has commit {number} of split {decided.split}, expected {decided.number}: it was "
            "restored from another time than the others",
            place=self.place,
            hint="restore all files of the history from one copy",
        )


def is_group(path: Path) -> bool:
    """Say whether a file is one of the several files of a history. Raises as `version_of`."""
    return version_of(path) == VERSION


def part_path(path: Path, number: int) -> Path:
    """Return where a part is, whose head is at *path*; from 0."""
    return path.with_name(f"{path.name}.{number + 1}")


class HistoryGroup(HistoryStore):
    """The open files. See `HistoryStore`."""

    def __init__(self, head: HistoryFile, files: Sequence[PartFile]) -> None:
        """Use `opened` or `made`."""
        self.path = head.path
        self.place = head.place
        self.table, self.buckets = head.table, head.buckets
        self.files = files
        self._head = head
        self._delayed = 0

    @property
    def parts(self) -> Sequence[HistoryPart]:
        """See `HistoryStore.parts`."""
        return self.files

    @classmethod
    def made(cls, path: Path, table: str, buckets: int, files: int) -> "HistoryGroup":
        """Open the files; make them where there are none. Raises as `opened`."""
        make(path, table, buckets, VERSION, _tables(secrets.token_hex(8), 0, files))
        with contextlib.closing(HistoryFile.opened(path, VERSION)) as head, named_errors(path):
            history, _, count, is_whole = _named(head)
            if (head.table, head.buckets, count) != (table, buckets, files):
                raise HistoryFileError(
                    f"is the history of {head.table} in {head.buckets} buckets, expected {table} "
                    f"in {buckets}; in {count} files, expected {files}",
                    place=str(path),
                    hint="none of these can be changed: give the history another `path`",
                )
            if not is_whole:
                for number in range(files):
                    tables = _tables(history, number + 1, files)
                    make(part_path(path, number), table, buckets, VERSION, tables)
                with head.writing():
                    head.run("UPDATE files SET is_whole = 1")
        return cls.opened(path)

    @classmethod
    def opened(cls, path: Path) -> "HistoryGroup":
        """Open files that exist.

        Raises:
            HistoryMissingError: a worker has not made them all yet.
            HistoryFileError: one is missing, is of another history, or older than the others.

        """
        with contextlib.ExitStack() as stack:
            head = stack.enter_context(contextlib.closing(HistoryFile.opened(path, VERSION)))
            history, number, count, is_whole = _named(head)
            if number:
                raise HistoryFileError(
                    f"is file {number} of a history in {count} files",
                    place=str(path),
                    hint="name the history by its path, which has no number behind it",
                )
            if not is_whole:
                raise HistoryMissingError("a worker has not made all its files", place=str(path))
            files = []
            for n in range(count):
                file = stack.enter_context(contextlib.closing(_part(head, history, n, count)))
                files.append(file)
            found = cls(head, files)
            found.check()
            stack.pop_all()
        return found

    def check(self) -> None:
        """Compare commits of the parts with those of the head. Raises HistoryFileError."""
        before = self._decided()
        taken = [dict(part.run("SELECT split, number FROM taken")) for part in self.files]
        for each in before:
            number = taken[each.part].get(each.split, 0)
            if number < each.number - 1:
                raise self.files[each.part].of_another_time(each, number)
        known = {(each.split, each.part): each for each in self._decided()}
        for part, numbers in enumerate(taken):
            for split, number in numbers.items():
                of_head = known.get((split, part), Decided(split, part, 0, 0))
                if number > of_head.number:
                    raise self.files[part].of_another_time(of_head, number)

    def close(self) -> None:
        """See `HistoryStore.close`."""
        for each in (*self.files, self._head):
            each.close()

    def purge(self) -> None:
        """See `HistoryStore.purge`."""
        for each in (self._head, *self.files):  # Without a head, parts cannot be read.
            each.purge()

    # Commits.

    def writing(
        self, split: str = "", *, begins: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """See `HistoryStore.writing`: the head."""
        return self._head.writing(split, begins=begins)

    def decide(self, split: str, contents: Mapping[int, bytes]) -> list[Decided]:
        """Decide what parts, by number, are to take. Within `writing`; all before was taken.

        Raises:
            HistoryFileError: a part was restored from another time.

        """
        known = {each.part: each for each in self._decided(split)}
        made = []
        for part, each in known.items():
            number = self.files[part].taken(split)
            if number != each.number:
                raise self.files[part].of_another_time(each, number)
        for part, content in contents.items():
            number = known[part].number + 1 if part in known else 1
            row = split, part, number, content
            self._head.run("INSERT OR REPLACE INTO decided VALUES (?, ?, ?, ?)", row)
            made.append(Decided(split, part, number, len(content)))
        self._forget(each for part, each in known.items() if part not in contents)
        return made

    def content(self, decided: Decided) -> bytes:
        """Return what was decided."""
        text = "SELECT content FROM decided WHERE split = ? AND part = ?"
        found = self._head.run(text, (decided.split, decided.part))
        return bytes(found.fetchone()[0])

    def undone(self) -> list[Decided]:
        """Return what was decided, and parts do not have yet. Raises HistoryFileError."""
        return [each for each in self._decided() if not self.files[each.part].has_taken(each)]

    def forget_done(self) -> None:
        """Remove what parts have taken from the head. Raises as `writing`."""
        done = [e for e in self._decided() if e.size_bytes and self.files[e.part].has_taken(e)]
        if done:
            with self.writing():
                self._forget(done)

    def _forget(self, done: Iterable[Decided]) -> None:
        text = "UPDATE decided SET content = x'' WHERE split = ? AND part = ? AND number = ?"
        self._head.run_many(text, [each[:3] for each in done if each.size_bytes])

    def _decided(self, split: str | None = None) -> list[Decided]:
        with named_errors(self.path):
            text = "SELECT split, part, number, length(content) FROM decided WHERE ? IN (split, '')"
            return [Decided(*row) for row in self._head.run(text, (split or "",))]

    def writer(self, split: str) -> int:
        """See `HistoryStore.writer`."""
        return self._head.writer(split)

    def set_writer(self, split: str, epoch: int) -> None:
        """See `HistoryStore.set_writer`."""
        self._head.set_writer(split, epoch)

    def entries(self, split: str) -> dict[str, bytes]:
        """See `HistoryStore.entries`."""
        return self._head.entries(split)

    def keep_entries(self, split: str, entries: Mapping[str, bytes | None]) -> None:
        """See `HistoryStore.keep_entries`."""
        self._head.keep_entries(split, entries)

    def schemas(self) -> dict[int, RecordSchema]:
        """See `HistoryStore.schemas`."""
        return self._head.schemas()

    def schema_number(self, schema: RecordSchema) -> int:
        """See `HistoryStore.schema_number`."""
        return self._head.schema_number(schema)

    def origin(self) -> Origin:
        """See `HistoryStore.origin`."""
        return self._head.origin()

    def keep_origin(self, origin: Origin) -> None:
        """See `HistoryStore.keep_origin`."""
        self._head.keep_origin(origin)

    # The clocks.

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """See `HistoryStore.reading`: a snapshot of each part. What is before `last` is whole."""
        with contextlib.ExitStack() as stack:
            for part in self.files:
                stack.enter_context(part.reading())
            yield

    def version(self) -> int:
        """See `HistoryStore.version`."""
        return sum(part.version() for part in self.files) + self._delayed

    def last(self) -> int:
        """See `HistoryStore.last`: no part has promised less."""
        return min(part.last() for part in self.files)

    def settle(self, until_ms: int) -> None:
        """See `HistoryStore.settle`: as far as the part that has come furthest, at least."""
        until_ms = max(until_ms, *(arrival.ms_of(part.last()) + 1 for part in self.files))
        try:
            for part in self.files:
                part.settle(until_ms)
        except HistoryBusyError:
            self._delayed += 1  # A reader that waits for another version looks again.
            raise

    def catch_up(self) -> None:
        """See `HistoryStore.catch_up`."""
        if len({part.last() for part in self.files}) > 1:
            self.settle(0)

    # What is kept.

    def floor(self) -> int:
        """See `HistoryStore.floor`."""
        return max(part.floor() for part in self.files)

    def removed(self) -> int:
        """See `HistoryStore.removed`."""
        return max(part.removed() for part in self.files)

    def extent(self) -> tuple[int, int, int]:
        """See `HistoryStore.extent`."""
        found = [each for each in (part.extent() for part in self.files) if each[2]]
        if not found:
            return 0, 0, 0
        firsts, lasts, counts = zip(*found, strict=True)
        return min(firsts), max(lasts), sum(counts)

    def size_behind(self, behind: int) -> int:
        """See `HistoryStore.size_behind`."""
        return sum(part.size_behind(behind) for part in self.files)

    def keep_scopes(
        self, scopes: frozenset[str], now_ms: int, *, states: bool, is_empty: bool
    ) -> None:
        """See `HistoryStore.keep_scopes`: each part has epochs of its own."""
        for part in self.files:
            part.keep_scopes(scopes, now_ms, states=states, is_empty=is_empty)

    def epochs(self) -> list[Epoch]:
        """See `HistoryStore.epochs`: what all parts keep."""
        return [epoch for epoch, _ in self._eras()]

    def seed(self, states_since_us: int | None) -> Seed | None:
        """See `HistoryStore.seed`: what is true of all parts."""
        of = [each for epoch, each in self._eras() if epoch.states_since_us == states_since_us]
        if not of:
            return None
        found = [
            part.seed(epoch.states_since_us) for part, epoch in zip(self.files, of[-1], strict=True)
        ]
        seeds = [each for each in found if each is not None]
        if len(seeds) < len(found) or len({each.run for each in seeds}) > 1:
            return None
        done = [each.done for each in seeds if each.done is not None]
        return Seed(
            seeds[0].run,
            max(each.begun_us for each in seeds),
            max(done) if len(done) == len(seeds) else None,
            sum(each.rows for each in seeds),
        )

    def _eras(self) -> list[tuple[Epoch, list[Epoch]]]:
        """Return what all parts keep from an arrival on, and the epoch of each part then."""
        of_parts = [part.epochs() for part in self.files]
        if not all(of_parts):
            return []
        made: list[tuple[Epoch, list[Epoch]]] = []
        for since in sorted({epoch.since for epochs in of_parts for epoch in epochs}):
            now = [[each for each in epochs if each.since <= since][-1] for epochs in of_parts]
            scopes = frozenset.intersection(*(each.scopes for each in now))
            times = [each.states_since_us for each in now if each.states_since_us is not None]
            states = max(times) if len(times) == len(now) else None
            made.append((Epoch(since, scopes, states), now))
        return made

    # Changes.

    def changes(
        self, wanted: Range, *, descending: bool = False, count_max: int = -1
    ) -> Iterator[Change]:
        """See `HistoryStore.changes`."""
        found = heapq.merge(
            *(part.changes(wanted, descending=descending) for part in self._having(wanted)),
            key=_arrival,
            reverse=descending,
        )
        return islice(found, None if count_max < 0 else count_max)

    def count(self, wanted: Range) -> int:
        """See `HistoryStore.count`."""
        return sum(part.count(wanted) for part in self._having(wanted))

    def cuts(self, wanted: Range, size: int) -> list[int]:
        """See `HistoryStore.cuts`."""
        return list(islice(self.arrivals(wanted), size, None, size))

    def arrivals(self, wanted: Range) -> Iterator[int]:
        """Yield the arrivals of what is wanted, ascending. Within `reading`."""
        return heapq.merge(*(part.arrivals(wanted) for part in self._having(wanted)))

    def _having(self, wanted: Range) -> Iterable[PartFile]:
        """Return the parts that may have what is wanted."""
        if wanted.key is not None:
            return [self.files[self._number_of(wanted.key)]]
        numbers = {bucket % len(self.files) for bucket in wanted.buckets}
        return [self.files[number] for number in sorted(numbers)] if numbers else self.files

    def _number_of(self, key: bytes) -> int:
        """Return the number of the part that has the bucket of *key*."""
        return crc32(key) % self.buckets % len(self.files)

    def has_partitions(self) -> bool:
        """See `HistoryStore.has_partitions`."""
        return any(part.has_partitions() for part in self.files)

    def states(self, names: Sequence[Name]) -> Iterator[tuple[bytes, bytes, bytes]]:
        """See `HistoryStore.states`."""
        of_parts: dict[int, list[Name]] = {}
        for name in names:
            of_parts.setdefault(self._number_of(name[0]), []).append(name)
        for number, mine in of_parts.items():
            yield from self.files[number].states(mine)


def _arrival(change: Change) -> int:
    return change.arrival


def _tables(history: str, number: int, count: int) -> list[str]:
    """Return what a file has besides the tables of any history; the head is number 0."""
    row = f"INSERT INTO files VALUES (1, '{history}', {number}, {count}, 0)"  # noqa: S608 (ours)
    return [_FILES, row, _TAKEN if number else _DECIDED]


def _named(file: HistoryFile) -> tuple[str, int, int, int]:
    found: tuple[str, int, int, int] = file.run(
        "SELECT history, number, count, is_whole FROM files"
    ).fetchone()
    return found


def _part(head: HistoryFile, history: str, number: int, count: int) -> PartFile:
    """Open a part. Raises HistoryFileError."""
    path = part_path(head.path, number)
    try:
        part = PartFile.opened(path, VERSION)
    except HistoryMissingError as error:
        raise HistoryFileError(
            f"is missing: it is file {number + 1} of {count} of {head.place}",
            place=str(path),
            hint="restore all files of the history from one copy",
        ) from error
    if _named(part)[:3] != (history, number + 1, count):
        part.close()
        raise HistoryFileError(
            f"is not file {number + 1} of the history {head.place}",
            place=str(path),
            hint="restore all files of the history from one copy; or remove what is left of a "
            "history that is gone",
        )
    part.number, part.of, part.head = number, count, head
    return part
