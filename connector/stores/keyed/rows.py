"""The rows of a job in a key-value backend: their partitions, and the documents in them.

A document is MessagePack followed by a CRC-32: a row that is not as it was written raises a
StateLostError that names it.
"""

import json
import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

import msgspec

from headrace.connector.stores import (
    Counters,
    LeaseRow,
    Loss,
    Publication,
    StateLostError,
    StoreUnavailableError,
    TableCounts,
    WorkerRow,
)
from headrace.connector.stores.stored import restore_hint
from headrace.plugins.stores.control_store import NoteKey
from headrace.plugins.stores.kept_modes import KeptModes
from headrace.plugins.stores.key_values import Change, Entry, Key, KeyValues, Partition

T = TypeVar("T")

TRIES_MAX: Final = 20  # For a row that another process replaces meanwhile.
BUCKETS: Final = 16  # Partitions of a job's leases: few to read, and seldom two writers in one.
JOB: Final = "job"  # The name of the job's own row; names of plans are numbers.
HEAD: Final = "head"
PROBLEM: Final = "problem"
SINK: Final = "sink "  # The prefix of a host's name.
SPLIT: Final = "/"  # The prefix of a split's name in observed states; the job's is empty.
SCHEMAS: Final = Partition(json.dumps(["schemas"]), is_plain=True)
NUMBERS: Final = Partition(json.dumps(["numbers"]))
_CHECK_BYTES: Final = 4

Counts = dict[str, tuple[int, int, int, int, int, int, int, int]]


class JobRow(msgspec.Struct, frozen=True):
    """The job's secret key, the plan in force, and the job file that it last ran with."""

    key: bytes
    plan: int
    splits: list[str]
    file: str = ""


class PlanRow(msgspec.Struct, frozen=True):
    """A plan that was announced, or one that ended, with its books."""

    splits: list[str]
    books: dict[str, int] = {}
    counters: Counts = {}


class Head(msgspec.Struct, frozen=True):
    """A split's state without the bytes of its chunks.

    `chunks` has the token under which each was written, and its size in bytes. It is None if the
    split has no position: a position that is missing for another reason is lost. The plan of a
    split that must not be loaded is negative. For `kept_in`, `moved` and `behind` see `Heads`.
    """

    plan: int
    token: int
    owner: str | None
    seq: int
    position: bytes | None = None
    chunks: dict[str, tuple[int, int]] | None = None
    counters: Counts = {}
    kept_in: str = ""
    moved: int = 0
    behind: bool = False
    modes: KeptModes | None = None


class Worker(msgspec.Struct, frozen=True):
    """A worker; `beat_ms` is when its beat last increased, by its own clock."""

    row: WorkerRow
    beat_ms: int


class LossRow(msgspec.Struct, frozen=True):
    """A loss without its content, which is in `pieces` rows of a partition of its own."""

    number: int
    lost_ms: int
    sent: bool
    size: int
    pieces: int
    loss: Loss


class PublicationRow(msgspec.Struct, frozen=True):
    """A publication in the order of `queued_us`."""

    publication: Publication
    queued_us: int


class JobRows:
    """Names the rows of one job, and reads them."""

    def __init__(self, values: KeyValues, job: str) -> None:
        """Read nothing yet."""
        self.values = values
        self.name = job
        self.job = decided("job", job)
        self.publications = decided("publications", job)
        self.seen = plain("seen", job)
        self.workers = plain("workers", job)
        self.buckets = [decided("leases", job, str(n)) for n in range(BUCKETS)]
        self._leases: dict[str, Key] = {}
        self._heads: dict[str, Key] = {}
        self._chunks: dict[str, Partition] = {}

    def lease(self, split: str) -> Key:
        """Return the key of a split's lease."""
        found = self._leases.get(split)
        if found is None:
            bucket = self.buckets[zlib.crc32(split.encode()) % BUCKETS]
            found = self._leases[split] = Key(bucket, split)
        return found

    def head(self, split: str) -> Key:
        """Return the key of a split's head."""
        found = self._heads.get(split)
        if found is None:
            found = self._heads[split] = Key(decided("head", self.name, split), HEAD)
        return found

    def chunks(self, split: str) -> Partition:
        """Return the partition of a split's chunks; a row is named by token and chunk name."""
        found = self._chunks.get(split)
        if found is None:
            found = self._chunks[split] = plain("chunks", self.name, split)
        return found

    def losses(self, split: str) -> Partition:
        """Return the partition of a split's losses."""
        return plain("losses", self.name, split)

    def content(self, split: str, loss: str) -> Partition:
        """Return the partition of a loss's content."""
        return plain("content", self.name, split, loss)

    def lease_change(self, split: str, stamp: int | None, lease: LeaseRow | None) -> Change:
        """Return the change that replaces the lease with *stamp*; None stands for no lease."""
        return _replacing(self.lease(split), stamp, lease)

    def head_change(
        self,
        split: str,
        stamp: int | None,
        head: Head | None,
        first: Mapping[Key, bytes] | None = None,
        then: Collection[Key] = (),
    ) -> Change:
        """Return the change that replaces the head with *stamp*; None stands for no head."""
        return _replacing(self.head(split), stamp, head, first, then)

    def lost(self, what: str, split: str = "") -> StateLostError:
        """Return the error that *what* of the job, or of a split, is lost."""
        place = f"{self.values.place}: job {self.name}"
        place = f"{place}, split {split}" if split else place
        return StateLostError(what, place=place, hint=restore_hint(self.values.noun))

    def row(self, kind: type[T], key: Key) -> tuple[int, T] | None:
        """Return the stamp of a row and its document, if it exists. Raises StateLostError."""
        return self.read(kind, [key]).get(key)

    def read(self, kind: type[T], keys: Collection[Key]) -> dict[Key, tuple[int, T]]:
        """Return the stamps and documents of the rows that exist. Raises StateLostError."""
        return self._unpacked(kind, self.values.read(keys))

    def scan(self, kind: type[T], partitions: Collection[Partition]) -> dict[Key, tuple[int, T]]:
        """Return stamps and documents of all rows of *partitions*, by name. Raises as `read`."""
        return self._unpacked(kind, self.values.scan(partitions))

    def _unpacked(self, kind: type[T], entries: Mapping[Key, Entry]) -> dict[Key, tuple[int, T]]:
        return {k: (entry.stamp, self.unpack(kind, k, entry)) for k, entry in entries.items()}

    def unpack(self, kind: type[T], key: Key, entry: Entry) -> T:
        """Return the document in a row. Raises StateLostError."""
        return unpack(kind, key, entry, self.values)

    def replace(
        self, key: Key, kind: type[T], changed: Callable[[T | None], T | None], what: str
    ) -> T | None:
        """Replace the document in a row by the result of *changed*, and return that.

        *changed* gets None if the row does not exist, and is called again if another process was
        faster; if it returns None the row stays. *what* describes the row in errors.

        Raises:
            StoreUnavailableError: other processes replaced it each time.

        """
        for _ in range(TRIES_MAX):
            stamp, document = self.row(kind, key) or (None, None)
            made = changed(document)
            if made is None:
                return None
            change = _replacing(key, stamp, made)
            if self.values.change([change])[0]:
                return made
        raise StoreUnavailableError(f"others replace {what} all the time", place=self.name)


def decided(*names: str) -> Partition:
    """Return a partition with conditional writes; no other has the same *names*."""
    return Partition(json.dumps(names))


def plain(*names: str) -> Partition:
    """Return a partition with unconditional writes; no other has the same *names*."""
    return Partition(json.dumps(names), is_plain=True)


def named(key: Key, parsed: Callable[[str], T], values: KeyValues) -> T:
    """Return the content of a row's name. Raises StateLostError if the name is malformed."""
    try:
        return parsed(key.name)
    except ValueError as error:
        raise StateLostError(
            f"row {key.name!r} of {key.partition.text} has an unknown name",
            place=values.place,
            hint=restore_hint(values.noun),
        ) from error


def _replacing(
    key: Key,
    stamp: int | None,
    document: object | None,
    first: Mapping[Key, bytes] | None = None,
    then: Collection[Key] = (),
) -> Change:
    return Change(
        partition=key.partition,
        expected={key.name: stamp},
        rows={key.name: None if document is None else pack(document)},
        first=first or {},
        then=then,
    )


def notes_in(rows: Mapping[Key, Entry], values: KeyValues) -> dict[NoteKey, str]:
    """Return the notes in *rows*. Raises StateLostError."""
    found = {}
    for key, entry in rows.items():
        kind, name = named(key, json.loads, values)
        found[kind, name] = unpack(str, key, entry, values)
    return found


def pack(document: object) -> bytes:
    """Return the bytes that `unpack` reads."""
    packed = msgspec.msgpack.encode(document)
    return packed + zlib.crc32(packed).to_bytes(_CHECK_BYTES, "big")


def unpack(kind: type[T], key: Key, entry: Entry, values: KeyValues) -> T:
    """Return the document in a row.

    Raises:
        StateLostError: it is not as it was written.

    """
    packed, check = entry.value[:-_CHECK_BYTES], entry.value[-_CHECK_BYTES:]
    try:
        if zlib.crc32(packed).to_bytes(_CHECK_BYTES, "big") != check:
            raise ValueError("its checksum is another")  # noqa: TRY301 (one end for all)
        return msgspec.msgpack.decode(packed, type=kind)
    except (ValueError, msgspec.MsgspecError) as error:
        raise StateLostError(
            f"row {key.name!r} of {key.partition.text} cannot be read: {error}",
            place=values.place,
            hint=restore_hint(values.noun),
        ) from error


def counts_of(counters: Counters) -> Counts:
    """Return counters in the form of rows."""
    return {table: each.numbers for table, each in counters.items()}


def counters_in(counts: Counts) -> Mapping[str, TableCounts]:
    """Return the counters of a row."""
    return {table: TableCounts(*numbers) for table, numbers in counts.items()}
