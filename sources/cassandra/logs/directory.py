"""Where segment bytes come from: the protocol, and its first implementation, a `cdc_raw` directory.

A live segment may be read up to the offset in its index file, a final one to the end of its sync
markers (I6). Rules cite section 1 of docs/commit-log.md. Blocking file I/O; for one thread.
"""

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headrace.sources.cassandra.commitlog.framer import Supply
from headrace.sources.cassandra.commitlog.manifest import Manifest, file_of, place_of
from headrace.sources.cassandra.commitlog.segment import (
    HEADER_BYTES_MAX,
    Index,
    index_name,
    indexed_segments,
    log_name,
    parse_descriptor,
    parse_index,
    parse_name,
)
from headrace.sources.cassandra.errors import (
    END_OFFSET,
    LogUnreadableError,
    NotAFileError,
    NotCdcDirectoryError,
    SegmentError,
)
from headrace.sources.cassandra.logs import last_seen, pins, rescued_copies
from headrace.sources.cassandra.logs.descriptors import Descriptors
from headrace.sources.cassandra.logs.folder_watch import CONTENT, NAMES, FolderWatch
from headrace.sources.cassandra.logs.glance import Glance
from headrace.sources.cassandra.logs.index_files import INDEX_BYTES_MAX, IndexFiles
from headrace.sources.cassandra.logs.pins import FOLDER, HoldError
from headrace.sources.cassandra.logs.regular import (
    flaw_of,
    open_regular,
    read_regular,
    read_with_time,
    reread,
)
from headrace.sources.cassandra.logs.rescued_copies import Rescued

if TYPE_CHECKING:
    from headrace.plugins import RetriableError

NO_LIMIT: Final = -1
Arcs = tuple[tuple[int, int], ...]  # Tokens, inclusive and ascending; empty means all.


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One segment with CDC data, as listed; `segment_id` is its number in the log's `Manifest`.

    `limit` is the logical offset up to which it is durable, NO_LIMIT when it is final. `missing`:
    only its index exists, so it contained CDC data that can no longer be read. `unwatched`:
    segments right before it may have been removed unseen. The reader needs no mutation that ends
    after `until`. `indexed`: for a final segment, the logical offset up to which its index names
    sections; otherwise 0. `durable_ms` is when its index last reported more durable data, in ms
    since 1970; 0 is unknown.
    """

    segment_id: int
    name: str
    limit: int
    missing: bool = False
    unwatched: bool = False
    until: int = END_OFFSET
    indexed: int = 0
    durable_ms: int = field(default=0, compare=False)

    @property
    def final(self) -> bool:
        """Whether nothing will be appended to it, and it is to be read to its end."""
        return self.limit == NO_LIMIT and self.until == END_OFFSET

    @property
    def end(self) -> int:
        """The logical offset up to which it may be read."""
        return min(END_OFFSET if self.limit == NO_LIMIT else self.limit, self.until)


class SegmentBytes(Protocol):
    """An open segment."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read file bytes at *offset* into *buffer*. Return their number; 0 at the file's end."""

    @property
    def supply(self) -> Supply | None:
        """The supply of ready entries for a framer, if the reader of the log has one."""

    def close(self) -> None:
        """Close the file."""


class LogReader(Protocol):
    """One node's log, in a directory here or served by its agent."""

    def segments(self) -> Sequence[SegmentInfo]:
        """Return the segments that hold CDC data now, by ascending number."""

    def is_still(self) -> bool:
        """Return whether `segments` would return the same; False if only a listing can say."""

    def open(self, segment: SegmentInfo) -> SegmentBytes:
        """Open a listed segment. Raises FileNotFoundError when it has vanished."""

    def narrow(self, passed: Collection[bytes], kept: Collection[bytes], arcs: Arcs) -> bool:
        """Leave out entries that are not needed from now on, where that saves work.

        These are single updates of the tables *passed* and of system tables that are not *kept*,
        and tokens outside *arcs*, inclusive and ascending. Returns whether data read ahead may be
        missing entries that are needed now: then the open segment is framed again from its marker.
        """

    def fetch(self, segment_id: int, position: int, length: int) -> Rescued | None:
        """Return the mutation of *length* bytes whose entry ends at *position*, opening no segment.

        Returns None if the log does not support this, or does not have the mutation.
        """


class NodeLog(LogReader, Protocol):
    """A node's log as a job uses it: it can be ended early, and surveyed."""

    manifest: Manifest
    listed: Sequence[SegmentInfo] | None
    """The last listing, if known."""
    is_reported: bool | None
    """Whether writes to the directory are reported; None while that is unknown."""

    def follow(self, descriptors: Descriptors | None) -> None:
        """Make the agent, if any, report writes through one of *descriptors*; None stops that."""

    def is_written(self) -> bool:
        """Return whether the log may have changed since it was listed, other than by time."""

    def check(self) -> None:
        """Raise the error of `segments` that lasts until a user fixes its cause."""

    def end_at(self, segment_id: int, offset: int) -> None:
        """List no segments after this place, and this segment only up to *offset*."""

    def size_of(self, segment: SegmentInfo) -> int:
        """Return the bytes of a listed segment's file."""

    def close(self) -> None:
        """Close connections. Safe to call twice; the log can be used again."""

    def modified_ms(self, segment: SegmentInfo) -> float:
        """Return when a listed segment was written to last, in ms since 1970."""


class SegmentFile:
    """A segment in a file; `bytes_read` counts the bytes read from it."""

    supply: Supply | None = None

    def __init__(self, path: Path) -> None:
        """Open *path*; its inode stays readable after the name is gone.

        Raises:
            FileNotFoundError: the segment has vanished.
            LogUnreadableError: we may not read it.

        """
        self._path = path
        try:
            self._descriptor: int | None = open_regular(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unreadable(path, error) from error
        self.bytes_read = 0

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read file bytes at *offset* into *buffer*. Return their number."""
        assert self._descriptor is not None, "the segment is closed"  # noqa: S101 (our own bug)
        try:
            came = os.preadv(self._descriptor, [buffer], offset)
        except OSError as error:
            raise _unreadable(self._path, error) from error
        self.bytes_read += came
        return came

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class LogDirectory:
    """A node's `cdc_raw` directory."""

    def __init__(
        self,
        path: Path,
        commitlog: Path | None = None,
        *,
        hold: Path | None = None,
        may_be_gone: bool = False,
        watch: FolderWatch | None = None,
    ) -> None:
        """Set the directory *path* to list, and the node's *commitlog* directory.

        The commit log directory shows earlier that a segment is final, if a crash left it without
        COMPLETED. *hold* contains links to segments that are no longer in *path*. A directory that
        *may_be_gone* may be missing at first. While *watch* reports no change, the last listing
        stays valid.
        """
        self.path = path
        self.hold = hold
        self.folders = (path,) if hold is None else (path, hold)
        self.manifest = Manifest()
        self.flaws: Sequence[RetriableError] = ()
        """What is wrong with index files, where that stayed so while segments were listed.

        And what is skipped, because it is not a file.
        """
        self._commitlog = commitlog
        self._indexes = IndexFiles()  # Of segments that may still be written.
        self._is_plain: dict[int, bool] = {}  # Whether each of them is plain.
        self._reported: dict[int, int] = {}  # Of the other segments; see `SegmentInfo.indexed`.
        # The last content of each segment's index, and when it was written.
        self._said: dict[int, tuple[Index | None, int]] = {}
        self._others: Sequence[NotAFileError] = ()  # Named like a segment, but not a file.
        self._listed = self._recalled = False
        self._may_be_gone = may_be_gone
        self._until: tuple[int, int] | None = None
        self._is_settled = False  # Whether only an event can change the listing.
        self._watch = watch
        self._glance: Glance | None = None  # Without events: the folders at the last listing.
        self._watched = dict.fromkeys(self.folders, CONTENT)
        if commitlog is not None:
            self._watched[commitlog] = NAMES
        self.is_reported: bool | None = True
        # The last listing, and the numbers of the manifest at that time.
        self.listed: Sequence[SegmentInfo] | None = None
        self._numbers: object = None

    def check(self) -> None:
        """Check that the directories can be listed, without reading an index. Raises as `segments`.

        A node that has not started yet has an empty `cdc_raw`, and no commit log.
        """
        if self._names() and self._commitlog is not None:
            self._names_of_node(self._commitlog)

    def end_at(self, segment_id: int, offset: int) -> None:
        """List no segments after this place: bulk work ends where it was planned to."""
        self._until, self.listed = (segment_id, offset), None

    def segments(self) -> Sequence[SegmentInfo]:
        """Return the segments that have an index file, by ascending number.

        A segment without an index has no durable CDC data yet. A segment with a later one beside it
        is final even if its index never said COMPLETED: a crash can leave it so (1.5).

        Raises:
            NotCdcDirectoryError: the path is not a directory, or contains only unrelated files.

        """
        last, watch = self.listed, self._watch
        if watch is None or not self._listed:  # A directory that is listed once is not watched.
            self.listed, self._numbers = self._list(), None
            return self.listed
        known = last if self._numbers is self.manifest.stored else None
        if known is not None and not self._indexes.unsettled:
            written = watch.take_written()
            found = None if written is None else self._after(known, written)
            if found is not None:
                self._is_settled, self.listed = True, found
                return found
            if written:
                watch.tell(None)
        self._is_settled = False
        self.listed = None
        watch.begin(self._watched)
        self._glance = None if watch.is_whole else Glance(self._watched)
        found = self._list()
        listed = last if last is not None and found == last else found
        watch.end(is_same=listed is last or known is None)
        self.listed = listed
        self._numbers = self.manifest.stored
        return listed

    def _after(
        self, last: Sequence[SegmentInfo], written: Collection[str]
    ) -> Sequence[SegmentInfo] | None:
        """Return the listing after *last*, given that only the files *written* were written to.

        A sync needs no new listing. Returns None where one is needed, as when a segment was
        completed.
        """
        if not written:
            return last
        live = last[-1] if last and self._until is None else None
        if live is None or live.missing or live.limit == NO_LIMIT:
            return None
        index = index_name(live.name)
        if not {live.name, index}.issuperset(written):
            return None
        return self._synced(last, live, index) if index in written else last

    def _synced(
        self, last: Sequence[SegmentInfo], live: SegmentInfo, index: str
    ) -> Sequence[SegmentInfo] | None:
        """Return the listing after the *index* of the *live* segment was rewritten, if known."""
        path = f"{self.path}/{index}"
        try:
            content, written_ms = reread(path, INDEX_BYTES_MAX)
        except OSError:  # The listing reports the error.
            return None
        number, name = live.segment_id, live.name
        said = self._indexes.look_again(number, path, content, lambda n: self._end(n, name))
        self._heard(number, said, written_ms)
        if said is None or said.completed or self._indexes.unsettled or self._indexes.flaws:
            return None
        if said.offset == live.limit:
            return last
        durable_ms = self._said[number][1]
        return [*last[:-1], replace(live, limit=said.offset, durable_ms=durable_ms)]

    def is_still(self) -> bool:
        """Implement `LogReader.is_still`."""
        return self._is_settled and self._watch is not None and self._watch.is_still()

    def follow(self, descriptors: Descriptors | None) -> None:
        """Do nothing: the directory is always watched."""

    def is_written(self) -> bool:
        """Implement `NodeLog.is_written`."""
        if self._watch is None or self.listed is None:
            return True
        if self.tells:
            return not self._watch.is_still()
        return self._glance is None or self._glance.is_other()

    @property
    def tells(self) -> bool:
        """Whether events report all writes."""
        return self._watch is not None and self._watch.is_whole

    def _list(self) -> Sequence[SegmentInfo]:
        names = self._names()
        if not self._recalled:
            self._recall()
        indexed = indexed_segments(names)
        numbers = self.manifest.note(indexed.keys())
        listed = sorted((numbers[file_id], file_id) for file_id in indexed)
        there = {number: indexed[n] for number, n in listed if indexed[n] in names}
        newest, looked = max(there, default=0), self._looked(there)
        written = self._written(there, looked)
        breaks = () if self.hold is None else last_seen.load(self.hold).breaks
        ends = self._indexed_ends(
            {n: name for n, name in there.items() if n not in written}, looked
        )
        said = self._said = {n: self._said[n] for n in there if n in self._said}
        # The index of the newest segment may arrive before its log if a tool copies both.
        found = [
            SegmentInfo(
                number,
                indexed[file_id],
                written.get(number, NO_LIMIT),
                missing=number not in there,
                unwatched=file_id in breaks,
                indexed=ends.get(number, 0),
                durable_ms=said[number][1] if number in said else 0,
            )
            for number, file_id in listed
            if number in there or number < newest
        ]
        return found if self._until is None else list(ended(found, *self._until))

    def _looked(self, there: Mapping[int, str]) -> Mapping[int, Index | None]:
        """Return the index of each generation's last segment, by descending number.

        *there* has the names of all segments, by ascending number.
        """
        last_ones = {place_of(number)[0]: number for number in there}
        numbers = sorted(last_ones.values(), reverse=True)
        found = {number: self._index_content(there[number]) for number in numbers}
        said = self._indexes.look(
            {number: each and (str(each[0]), each[1]) for number, each in found.items()},
            lambda number: self._end(number, there[number]),
        )
        for number, each in found.items():
            if each is not None:
                path, content, written_ms = each
                if self._glance is not None:
                    self._glance.note(path, content)
                self._heard(number, said[number], written_ms)
        return said

    def _heard(self, number: int, said: Index | None, written_ms: int) -> None:
        """Note the index of a segment, and when it was written."""
        before = self._said.get(number)
        if before is None or before[0] is not said:
            self._said[number] = said, written_ms

    def _written(
        self, there: Mapping[int, str], looked: Mapping[int, Index | None]
    ) -> Mapping[int, int]:
        """Return the segments that may still be written, and up to where each is durable.

        The last segment of a generation is also final once the node writes a later generation.
        """
        found: dict[int, int] = {}
        for number, index in looked.items():
            if found or (index and index.completed) or self._let_go(number, there[number]):
                continue
            found[number] = index.offset if index else 0
        flaws = [*self._others, *self._indexes.flaws]
        if flaws or self.flaws:
            self.flaws = flaws
        self._is_plain = {n: plain for n, plain in self._is_plain.items() if n in found}
        return found

    def _indexed_ends(
        self, final: Mapping[int, str], looked: Mapping[int, Index | None]
    ) -> Mapping[int, int]:
        """Return the offset up to which the index of each *final* segment names sections.

        Each index is read once: a replay may later write a smaller offset into it.
        """
        found = {number: self._reported[number] for number in final if number in self._reported}
        for number in final.keys() - found.keys():
            if number in looked:
                index = looked[number]
            else:
                content = self._index_content(final[number])
                index = None if content is None else parse_index(content[1])
                if content is not None:
                    self._said[number] = index, content[2]
            if index is not None:
                with contextlib.suppress(FileNotFoundError):  # Its reader reports it.
                    found[number] = index.indexed(self.find(final[number]).stat().st_size)
        self._reported = found
        return found

    def _let_go(self, number: int, name: str) -> bool:
        """Return whether the node's commit log no longer has a segment, but has a later one."""
        if self._commitlog is None:
            return False
        names = self._names_of_node(self._commitlog)
        ids = (parsed[1] for each in names if (parsed := parse_name(each)))
        later = (n > file_of(number) or (self.manifest.number(n) or 0) > number for n in ids)
        return name not in names and any(later)

    @staticmethod
    def _names_of_node(commitlog: Path) -> frozenset[str]:
        try:
            return frozenset(entry.name for entry in os.scandir(commitlog))
        except OSError as error:
            raise _unreadable(commitlog, error) from error

    def open(self, segment: SegmentInfo) -> SegmentFile:
        """Open a listed segment."""
        return SegmentFile(self.find(segment.name))

    def find(self, name: str) -> Path:
        """Return the path of a file. Raises FileNotFoundError if no folder has it."""
        for folder in self.folders:  # A segment is linked into the second, then leaves the first.
            with contextlib.suppress(FileNotFoundError):
                if flaw_of(folder / name) is None:
                    return folder / name
        raise FileNotFoundError(self.path / name)

    def narrow(self, passed: Collection[bytes], kept: Collection[bytes], arcs: Arcs) -> bool:
        """Do nothing: reading everything costs less."""
        del passed, kept, arcs
        return False

    def fetch(self, segment_id: int, position: int, length: int) -> Rescued | None:
        """Return a rescued copy of a segment that was removed."""
        del length
        return rescued_copies.load(self.path / FOLDER, file_of(segment_id), position)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def size_of(self, segment: SegmentInfo) -> int:
        """Return the size of a segment's file in bytes; 0 if it was just removed."""
        try:
            return self.find(segment.name).stat().st_size
        except FileNotFoundError:
            return 0

    def modified_ms(self, segment: SegmentInfo) -> float:
        """Return when a segment was written to last, in ms since 1970; 0 when it is gone."""
        try:
            return self.find(segment.name).stat().st_mtime * 1000
        except FileNotFoundError:
            return 0

    def _names(self) -> frozenset[str]:
        try:
            names, others = _files(self.path)
        except OSError as error:
            if self._listed or self._may_be_gone:  # A disk or a mount that fails temporarily.
                raise _unreadable(self.path, error) from error
            raise NotCdcDirectoryError(
                f"expected a cdc_raw directory, found {error.strerror}",
                place=str(self.path),
                hint="give the directory that cdc_raw_directory names in cassandra.yaml; of a node "
                "that is gone name it under source.absent",
            ) from error
        visible = [name for name in {*names, *others} if not name.startswith(".")]
        if visible and not any(name.startswith("CommitLog-") for name in visible):
            raise NotCdcDirectoryError(
                f"expected CommitLog-<version>-<id>.log files, found {min(visible)!r}",
                place=str(self.path),
                hint="give the directory that cdc_raw_directory names in cassandra.yaml",
            )
        self._listed = True
        held, more = self._held()
        flawed = [self.path / name for name in others]
        flawed += [self.hold / name for name in more] if self.hold is not None else []
        self._others = [flaw for path in sorted(flawed) if (flaw := _flaw(path))]
        return names | held

    def _recall(self) -> None:
        """Fill the manifest from the pins that jobs left beside the log."""
        with contextlib.suppress(HoldError, OSError):  # Who disposes of them says so.
            for listed in pins.listed_in(self.path / FOLDER):
                self.manifest.hear(listed)
        self._recalled = True

    def _held(self) -> tuple[frozenset[str], Collection[str]]:
        try:
            return (frozenset(), ()) if self.hold is None else _files(self.hold)
        except FileNotFoundError:  # Nothing has been held yet.
            return frozenset(), ()
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def _index_content(self, name: str) -> tuple[Path, bytes, int] | None:
        """Return the path of the index of segment *name*, its content, and when it was written."""
        index = index_name(name)
        for folder in self.folders:  # Opened directly: each listing does this for each segment.
            path = folder / index
            try:
                return path, *read_with_time(path, INDEX_BYTES_MAX)
            except (FileNotFoundError, NotAFileError):
                continue
            except OSError as error:
                raise _unreadable(path, error) from error
        return None

    def _end(self, number: int, name: str) -> int:
        """Return the limit of offsets in a segment: the file's length if it is plain."""
        if self._is_plain.get(number):  # Needed at each sync.
            with contextlib.suppress(OSError):
                return os.stat(f"{self.path}/{name}", follow_symlinks=False).st_size  # noqa: PTH116
        try:
            path = self.find(name)
            if number not in self._is_plain:
                self._is_plain[number] = _is_plain(path)
            return path.stat().st_size if self._is_plain[number] else END_OFFSET
        except OSError:  # Its reader reports the error.
            return END_OFFSET


def sizes_in(path: Path) -> dict[str, int]:
    """Return the sizes of the segments and indexes in a folder, in bytes, as Cassandra counts them.

    Raises OSError.
    """
    found = {}
    with os.scandir(path) as entries:
        for entry in entries:
            if _is_named(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_size
    return found


def ended(found: Iterable[SegmentInfo], last: int, offset: int) -> Iterator[SegmentInfo]:
    """Yield the segments of a log that ends at *offset* of segment *last*."""
    for info in found:
        if info.segment_id < last or (info.segment_id == last and offset == END_OFFSET):
            yield info
        elif info.segment_id == last and offset:
            yield replace(info, until=offset)


def _is_plain(path: Path) -> bool:
    """Return whether offsets in a segment are places in its file: not compressed or encrypted."""
    try:
        head = read_regular(path, HEADER_BYTES_MAX)
    except NotAFileError:  # Its reader reports the error.
        return False
    try:
        return parse_descriptor(head, place=str(path)).wrapping is None
    except SegmentError:  # Its reader reports the error.
        return False


def _is_named(name: str) -> bool:
    """Return whether *name* is that of a segment or of an index."""
    is_ours = name.startswith("CommitLog-")
    return is_ours and bool(parse_name(name) or parse_name(log_name(name)))


def _files(path: Path) -> tuple[frozenset[str], Collection[str]]:
    """Return the names in a folder, without those of segments and indexes that are not files.

    The second result has the names of the latter.
    """
    with os.scandir(path) as entries:
        found = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
    others = [name for name, is_file in found.items() if not is_file and _is_named(name)]
    return frozenset(found.keys() - set(others)), others


def _flaw(path: Path) -> NotAFileError | None:
    try:
        return flaw_of(path)
    except OSError:  # It was just removed.
        return None


def _unreadable(path: Path, error: OSError) -> LogUnreadableError:
    hint = "the files of cdc_raw belong to the user that runs Cassandra"
    return LogUnreadableError(f"cannot be read: {error.strerror}", place=str(path), hint=hint)
