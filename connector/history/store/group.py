"""A history in several files: a head, and parts, each with some of the buckets.

Each part has its own clock, changes, states and epochs, and is written separately. The head has the
common data: the writer of a split, its position, schemas, and the decisions for each part. Parts
use different milliseconds, so an arrival identifies one change.
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
    """A split's commit for a part; commits with changes for the part count from 1.

    `size_bytes` is 0 when the head has removed the content because the part has it.
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
        """Return an arrival in a millisecond of this part, as for `HistoryPart.next_arrival`."""
        return arrival.next_in_slot(self.last(), now_ms, self.number, self.of)

    def append(self, columns: Columns, now_ms: int) -> None:
        """Append changes, as described for `HistoryPart.append`."""
        for begin in range(0, len(columns), arrival.SLOT_MAX):
            super().append(columns.cut(begin, begin + arrival.SLOT_MAX), now_ms)

    def schemas(self) -> dict[int, RecordSchema]:
        """Return the schemas, as described for `HistoryStore.schemas`."""
        return self.head.schemas()

    def schema_number(self, schema: RecordSchema) -> int:
        """Return the number that the head has assigned to the schema."""
        found = self.head.schemas().items()
        return next(number for number, each in found if each.schema_id == schema.schema_id)

    def taken(self, split: str) -> int:
        """Return the number of a split's last commit in this part, or 0."""
        found = self.run("SELECT number FROM taken WHERE split = ?", (split,))
        return next((int(number) for (number,) in found), 0)

    def has_taken(self, decided: Decided) -> bool:
        """Return whether a commit is in this part; its split may have made later ones.

        Raises:
            HistoryFileError: it is missing and removed from the head, or an earlier one is missing.

        """
        number = self.taken(decided.split)
        if number >= decided.number:
            return True
        if number != decided.number - 1 or not decided.size_bytes:
            raise self.of_another_time(decided, number)
        return False

    def take(self, decided: Decided) -> None:
        """Record that the part has a commit. Within `writing`."""
        self.run("INSERT OR REPLACE INTO taken VALUES (?, ?)", (decided.split, decided.number))

    def of_another_time(self, decided: Decided, number: int) -> HistoryFileError:
        """Return the error for a file that is older or newer than the head."""
        return HistoryFileError(
            f"has commit {number} of split {decided.split}, expected {decided.number}: it was "
            "restored from another time than the others",
            place=self.place,
            hint="restore all files of the history from one copy",
        )


def is_group(path: Path) -> bool:
    """Return whether a file is one of several of a history. Raises as `version_of`."""
    return version_of(path) == VERSION


def part_path(path: Path, number: int) -> Path:
    """Return the path of a part whose head is at *path*; parts are numbered from 0."""
    return path.with_name(f"{path.name}.{number + 1}")


class HistoryGroup(HistoryStore):
    """The open files of a history, as described for `HistoryStore`."""

    def __init__(self, head: HistoryFile, files: Sequence[PartFile]) -> None:
        """Keep the files; callers use `opened` or `made`."""
        self.path = head.path
        self.place = head.place
        self.table, self.buckets = head.table, head.buckets
        self.files = files
        self._head = head
        self._delayed = 0

    @property
    def parts(self) -> Sequence[HistoryPart]:
        """Return the parts, as described for `HistoryStore.parts`."""
        return self.files

    @classmethod
    def made(cls, path: Path, table: str, buckets: int, files: int) -> "HistoryGroup":
        """Open the files, and make them first if they do not exist. Raises as `opened`."""
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
        """Open existing files.

        Raises:
            HistoryMissingError: a worker has not yet made all of them.
            HistoryFileError: one is missing, of another history, or older than the others.

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
        """Close the files, as described for `HistoryStore.close`."""
        for each in (*self.files, self._head):
            each.close()

    def purge(self) -> None:
        """Remove the files, as described for `HistoryStore.purge`."""
        for each in (self._head, *self.files):  # Parts cannot be read without a head.
            each.purge()

    # Commits.

    def writing(
        self, split: str = "", *, begins: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """Write to the head, as described for `HistoryStore.writing`."""
        return self._head.writing(split, begins=begins)

    def decide(self, split: str, contents: Mapping[int, bytes]) -> list[Decided]:
        """Decide what parts, by number, must take. Within `writing`; all earlier was taken.

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
        """Return the content of a decision."""
        text = "SELECT content FROM decided WHERE split = ? AND part = ?"
        found = self._head.run(text, (decided.split, decided.part))
        return bytes(found.fetchone()[0])

    def undone(self) -> list[Decided]:
        """Return the decisions that parts have not yet taken. Raises HistoryFileError."""
        return [each for each in self._decided() if not self.files[each.part].has_taken(each)]

    def forget_done(self) -> None:
        """Remove content that parts have taken from the head. Raises as `writing`."""
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
        """Return a writer's epoch, as described for `HistoryStore.writer`."""
        return self._head.writer(split)

    def set_writer(self, split: str, epoch: int) -> None:
        """Store a writer's epoch, as described for `HistoryStore.set_writer`."""
        self._head.set_writer(split, epoch)

    def entries(self, split: str) -> dict[str, bytes]:
        """Return entries, as described for `HistoryStore.entries`."""
        return self._head.entries(split)

    def keep_entries(self, split: str, entries: Mapping[str, bytes | None]) -> None:
        """Store entries, as described for `HistoryStore.keep_entries`."""
        self._head.keep_entries(split, entries)

    def schemas(self) -> dict[int, RecordSchema]:
        """Return the schemas, as described for `HistoryStore.schemas`."""
        return self._head.schemas()

    def schema_number(self, schema: RecordSchema) -> int:
        """Return a schema's number, as described for `HistoryStore.schema_number`."""
        return self._head.schema_number(schema)

    def origin(self) -> Origin:
        """Return the origin, as described for `HistoryStore.origin`."""
        return self._head.origin()

    def keep_origin(self, origin: Origin) -> None:
        """Store the origin, as described for `HistoryStore.keep_origin`."""
        self._head.keep_origin(origin)

    # The clocks.

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read a snapshot of each part, as for `HistoryStore.reading`; up to `last` it is whole."""
        with contextlib.ExitStack() as stack:
            for part in self.files:
                stack.enter_context(part.reading())
            yield

    def version(self) -> int:
        """Return the version, as described for `HistoryStore.version`."""
        return sum(part.version() for part in self.files) + self._delayed

    def last(self) -> int:
        """Return the last arrival that all parts promise, as for `HistoryStore.last`."""
        return min(part.last() for part in self.files)

    def settle(self, until_ms: int) -> None:
        """Settle at least up to the most advanced part, as for `HistoryStore.settle`."""
        until_ms = max(until_ms, *(arrival.ms_of(part.last()) + 1 for part in self.files))
        try:
            for part in self.files:
                part.settle(until_ms)
        except HistoryBusyError:
            self._delayed += 1  # A reader that waits for a new version then checks again.
            raise

    def catch_up(self) -> None:
        """Catch up, as described for `HistoryStore.catch_up`."""
        if len({part.last() for part in self.files}) > 1:
            self.settle(0)

    # What is kept.

    def floor(self) -> int:
        """Return the floor, as described for `HistoryStore.floor`."""
        return max(part.floor() for part in self.files)

    def removed(self) -> int:
        """Return the last removed arrival, as described for `HistoryStore.removed`."""
        return max(part.removed() for part in self.files)

    def extent(self) -> tuple[int, int, int]:
        """Return the extent, as described for `HistoryStore.extent`."""
        found = [each for each in (part.extent() for part in self.files) if each[2]]
        if not found:
            return 0, 0, 0
        firsts, lasts, counts = zip(*found, strict=True)
        return min(firsts), max(lasts), sum(counts)

    def size_behind(self, behind: int) -> int:
        """Return a size, as described for `HistoryStore.size_behind`."""
        return sum(part.size_behind(behind) for part in self.files)

    def keep_scopes(
        self, scopes: frozenset[str], now_ms: int, *, states: bool, is_empty: bool
    ) -> None:
        """Store the scopes in each part, as described for `HistoryStore.keep_scopes`."""
        for part in self.files:
            part.keep_scopes(scopes, now_ms, states=states, is_empty=is_empty)

    def epochs(self) -> list[Epoch]:
        """Return the epochs common to all parts, as for `HistoryStore.epochs`."""
        return [epoch for epoch, _ in self._eras()]

    def seed(self, states_since_us: int | None) -> Seed | None:
        """Return the seed that all parts have in common, as for `HistoryStore.seed`."""
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
        """Return the common epochs of all parts, each with the epoch of each part."""
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
        """Yield changes, as described for `HistoryStore.changes`."""
        found = heapq.merge(
            *(part.changes(wanted, descending=descending) for part in self._having(wanted)),
            key=_arrival,
            reverse=descending,
        )
        return islice(found, None if count_max < 0 else count_max)

    def count(self, wanted: Range) -> int:
        """Count changes, as described for `HistoryStore.count`."""
        return sum(part.count(wanted) for part in self._having(wanted))

    def cuts(self, wanted: Range, size: int) -> list[int]:
        """Return cuts, as described for `HistoryStore.cuts`."""
        return list(islice(self.arrivals(wanted), size, None, size))

    def arrivals(self, wanted: Range) -> Iterator[int]:
        """Yield the arrivals of wanted changes, ascending. Within `reading`."""
        return heapq.merge(*(part.arrivals(wanted) for part in self._having(wanted)))

    def _having(self, wanted: Range) -> Iterable[PartFile]:
        """Return the parts that may have wanted changes."""
        if wanted.key is not None:
            return [self.files[self._number_of(wanted.key)]]
        numbers = {bucket % len(self.files) for bucket in wanted.buckets}
        return [self.files[number] for number in sorted(numbers)] if numbers else self.files

    def _number_of(self, key: bytes) -> int:
        """Return the number of the part that has the bucket of *key*."""
        return crc32(key) % self.buckets % len(self.files)

    def has_partitions(self) -> bool:
        """Check for partitions, as described for `HistoryStore.has_partitions`."""
        return any(part.has_partitions() for part in self.files)

    def states(self, names: Sequence[Name]) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield states, as described for `HistoryStore.states`."""
        of_parts: dict[int, list[Name]] = {}
        for name in names:
            of_parts.setdefault(self._number_of(name[0]), []).append(name)
        for number, mine in of_parts.items():
            yield from self.files[number].states(mine)


def _arrival(change: Change) -> int:
    return change.arrival


def _tables(history: str, number: int, count: int) -> list[str]:
    """Return the additional tables of such a file; the head is number 0."""
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
