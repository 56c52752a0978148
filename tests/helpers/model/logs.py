"""What nodes log in the model: mutations, and directories of forged segments with their copies.

A log is what Cassandra writes: it grows, is synced, completed, torn, trimmed; and while a stream
comes in, a file beside it says so.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from headrace.sources.cassandra.commitlog.manifest import file_of, number_in, place_of
from headrace.sources.cassandra.forge.mutations import encode_mutation
from headrace.sources.cassandra.forge.segments import SegmentWriter
from headrace.sources.cassandra.logs.pins import FOLDER
from headrace.sources.cassandra.logs.repair_streams import FILE as STREAMS
from headrace.sources.cassandra.schema.ddl import parse_schema

KEYSPACE: Final = "m"
TABLE: Final = f"{KEYSPACE}.t"
OTHER: Final = f"{KEYSPACE}.u"
SCHEMA: Final = """
CREATE KEYSPACE m WITH replication = {replication};
CREATE TABLE m.t (k int, c int, v blob, PRIMARY KEY (k, c))
    WITH cdc = true AND ID = 0f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a;
"""
SCHEMA_OF_TWO: Final = (
    SCHEMA
    + SCHEMA.splitlines()[2].replace(TABLE, OTHER)
    + """
    WITH cdc = true AND ID = 0f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5b;
"""
)
END: Final = (1 << 31) - 1
FIRST_SEGMENT: Final = 1_000_000
BACK: Final = 10_000  # The ids of a node that was set up again are lower by this.
_CRC_BYTES: Final = 4  # After an entry.
_NOW_US: Final = 1_700_000_000_000_000
_BEGAN_S: Final = _NOW_US // 1_000_000  # By the model's wall clocks.
_PARSED: Final = parse_schema(SCHEMA_OF_TWO.format(replication={"class": "SimpleStrategy"}))


def written_us(row: int) -> int:
    """Return the write time of a row: each has its own microsecond."""
    return _NOW_US + row


@dataclass(frozen=True)
class Mutation:
    """Rows of one partition, each with a number; `form` distinguishes bytes of the same rows.

    Each of its `tables` gets all of them.
    """

    key: int
    rows: tuple[int, ...]
    form: int = 0
    tables: tuple[str, ...] = (TABLE,)

    @cached_property
    def content(self) -> frozenset[int]:
        """Its content, independent of its bytes."""
        return frozenset(self.rows)


@dataclass
class Copy:
    """A mutation in a node's log; it may be read since `durable_ms`."""

    mutation: Mutation
    segment: int
    end: int
    durable_ms: int | None = None
    damaged: bool = False
    lost: bool = False

    @property
    def counts(self) -> bool:
        """Whether a new reader can read it."""
        return self.durable_ms is not None and not self.damaged and not self.lost


@dataclass
class Stream:
    """Writes of other nodes that are streamed into a log, from segment `first` to `last`."""

    first: int
    began_us: int
    reported_ms: int
    last: int | None = None

    def has(self, copy: Copy) -> bool:
        """Return whether a copy may belong to it, as far as it can be known from outside."""
        last = copy.segment if self.last is None else self.last
        oldest_us = written_us(min(copy.mutation.rows))
        return self.first <= copy.segment <= last and oldest_us <= self.began_us


@cache
def raw(mutation: Mutation) -> bytes:
    """Return the bytes that a node logs: other forms have empty updates after the rows."""
    key = _hex(mutation.key)
    items = [_row(n) for n in mutation.rows]
    updates = [{"table": table, "key": key, "items": items} for table in mutation.tables]
    updates += [{"table": TABLE, "key": key, "items": []}] * mutation.form
    return encode_mutation({"updates": updates}, _PARSED, 12)


def _row(number: int) -> dict[str, object]:
    cell = {"ts": written_us(number), "value": f"{number:04x}"}
    return {"clustering": [_hex(number)], "liveness": {"ts": cell["ts"]}, "columns": {"v": cell}}


def _hex(number: int) -> str:
    return number.to_bytes(4, "big").hex()


class NodeLog:
    """One node's commit log as Cassandra writes it: entries, sync markers, an index, segments."""

    def __init__(self, name: str, folder: Path) -> None:
        """Start without files."""
        self.name = name
        self.home = self.folder = folder  # Where the job looks for it, and where it is.
        self.unreadable_ms: int | None = None  # Since when these differ.
        self.named = False  # Whether a process had the option not to wait for it.
        self.copies: list[Copy] = []
        self._segment = FIRST_SEGMENT  # The number in the log's manifest, also in `copies`.
        self._older: list[int] = []  # The earlier ones.
        self._sections: list[list[Copy]] = [[]]
        self._durable = 0
        self._lost: set[int] = set()
        self.streams: list[Stream] = []
        folder.mkdir()

    def leave(self, now_ms: int) -> None:
        """Move to where no process can read it; it is still written to."""
        self.folder = self.home.rename(self.home.with_suffix(".away"))
        self.unreadable_ms = now_ms

    def come_back(self) -> None:
        """Move back, if it was away."""
        if self.unreadable_ms is not None:
            self.folder = self.folder.rename(self.home)
            self.unreadable_ms = None

    @property
    def segment(self) -> int:
        """The segment that is being written."""
        return self._segment

    def write(self, mutation: Mutation, *, damaged: bool = False) -> None:
        """Append an entry, in memory; a *damaged* one gets a wrong byte."""
        self._sections[-1].append(Copy(mutation, self._segment, 0, damaged=damaged))

    def sync(self, now_ms: int, *, index: bool = True) -> None:
        """End a section with its marker; without *index* no reader knows that it is durable."""
        if self._sections[-1]:
            self._sections.append([])
        self._store(now_ms if index else None)

    def roll(self, now_ms: int) -> None:
        """Complete the segment and start the next one."""
        self.sync(now_ms)
        if len(self._sections) > 1:
            self._index(f"{self._durable}\nCOMPLETED")
        self._begin()

    def crash(self, now_ms: int, *, torn: bool) -> None:
        """Lose what has no marker, and if *torn* also what no index has; restart.

        What has a marker is read by Cassandra at its start, and so by every reader.
        """
        if torn:
            kept = [s for s in self._sections if s and s[0].durable_ms is not None]
            lost = [copy for s in self._sections[len(kept) :] for copy in s]
            self._sections = [*kept, lost]
        self._end(now_ms)
        self._begin()

    def _end(self, now_ms: int) -> None:
        """Leave the segment as it is: what has a marker is final when there is a later segment."""
        if self._index_path(self._segment).exists():
            durable = self._durable
            self._store(None)
            for copy in self._marked():
                copy.durable_ms = now_ms if copy.durable_ms is None else copy.durable_ms
            self._index(str(durable))

    @property
    def generation(self) -> int:
        """How often the node was set up again, or its clock set back."""
        return place_of(self._segment)[0]

    def restart_ids(self, now_ms: int, *, is_wiped: bool) -> None:
        """Restart with lower ids, after all files were removed (*is_wiped*), or beside them."""
        self._end(now_ms)
        if is_wiped:
            self._lose([*self._older, self._segment])
            shutil.rmtree(self.folder)
            self.folder.mkdir()
        generation = self.generation + 1
        self._begin(number_in(generation, FIRST_SEGMENT - generation * BACK))

    def _begin(self, number: int | None = None) -> None:
        self._older.append(self._segment)
        self._segment = self._segment + 1 if number is None else number
        self._sections = [[]]
        self._durable = 0
        content = self._writer().forged(zeros=64).content
        self._path(self._segment).write_bytes(content)
        self._index("0")

    def _marked(self) -> Iterator[Copy]:
        yield from (copy for section in self._sections[:-1] for copy in section)

    def _store(self, durable_ms: int | None) -> None:
        writer = self._writer()
        for section in self._sections[:-1]:
            for copy in section:
                writer.add(raw(copy.mutation))
            writer.sync()
        for copy in self._sections[-1]:
            writer.add(raw(copy.mutation))
        made = writer.forged(zeros=64)
        known = {id(copy) for copy in self.copies}
        for copy, end in zip(self._marked(), made.ends, strict=True):
            copy.end = end
            if id(copy) not in known:
                self.copies.append(copy)
            if durable_ms is not None and copy.durable_ms is None:
                copy.durable_ms = durable_ms
        content = bytearray(made.content)
        for copy in self._marked():
            content[copy.end - _CRC_BYTES - 1] ^= copy.damaged
        self._path(self._segment).write_bytes(content)
        os.utime(self._path(self._segment), (_BEGAN_S, _BEGAN_S))
        if durable_ms is not None:
            self._durable = made.durable
        if durable_ms is not None or not self._index_path(self._segment).exists():
            self._index(str(self._durable))

    def _writer(self) -> SegmentWriter:
        return SegmentWriter(segment_id=file_of(self._segment))

    def _index(self, text: str) -> None:
        self._index_path(self._segment).write_text(text)

    def _path(self, segment: int) -> Path:
        return self.folder / f"CommitLog-7-{file_of(segment)}.log"

    def _index_path(self, segment: int) -> Path:
        return self.folder / f"CommitLog-7-{file_of(segment)}_cdc.idx"

    def lose(self, count: int) -> None:
        """Lose the oldest segments, which any process may remove for room; not the current one."""
        self._lose([n for n in self._older if self._path(n).exists()][:count])

    def _lose(self, segments: Sequence[int]) -> None:
        for segment in segments:
            self._path(segment).unlink(missing_ok=True)
            self._index_path(segment).unlink(missing_ok=True)
            self._lost.add(segment)
        for copy in self.copies:
            copy.lost |= copy.segment in self._lost

    def released(self) -> set[int]:
        """Return the segments that had durable entries and were disposed of."""
        return self.gone() - self._lost

    def gone(self) -> set[int]:
        """Return the segments that had durable entries and no longer exist."""
        had = {copy.segment for copy in self.copies if copy.durable_ms is not None}
        return {segment for segment in had if not self._path(segment).exists()}

    def rescued(self, segment: int) -> set[frozenset[int]]:
        """Return the contents of a removed segment whose bytes are kept beside the log."""
        path = self.folder / FOLDER / f".rescued-{file_of(segment)}"
        kept = path.read_bytes() if path.exists() else b""
        there = (copy.mutation for copy in self.copies if copy.segment == segment)
        return {mutation.content for mutation in there if raw(mutation) in kept}

    def begin_stream(self, rows: int, now_ms: int) -> None:
        """Start a stream: all *rows* so far may be written again from now on."""
        self.streams.append(Stream(self._segment, written_us(rows - 1), now_ms))
        self._tell_streams()

    def end_stream(self) -> None:
        """End the stream."""
        for stream in self.streams:
            stream.last = self._segment if stream.last is None else stream.last
        self._tell_streams()

    def _tell_streams(self) -> None:
        listed = [
            {"keyspace": KEYSPACE, "from": each.first, "began_us": each.began_us}
            | ({} if each.last is None else {"to": each.last})
            for each in self.streams
        ]
        path = self.folder / FOLDER / STREAMS
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(listed))

    def may_be_streamed(self, copy: Copy) -> bool:
        """Return whether a copy is where a stream came in, and was written before."""
        return any(stream.has(copy) for stream in self.streams)

    def is_streamed(self, copy: Copy) -> bool:
        """Return whether also no process can have read it before the stream was reported."""
        since_ms = copy.durable_ms
        listed = [each for each in self.streams if each.has(copy)]
        return since_ms is not None and any(each.reported_ms <= since_ms for each in listed)
