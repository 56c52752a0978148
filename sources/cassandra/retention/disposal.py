"""Keeps the files of one node's log: links them into the hold, and disposes of unneeded ones.

A segment is linked into the hold when it is first seen, so that nothing is lost when Cassandra
removes it. When it is final, Cassandra's own links are removed, so that its limit for `cdc_raw`
counts only the data being written. Without a hold, segments stay in `cdc_raw` until no job needs
them. Only files named like segments or their indexes are touched, and only in these two folders.
Blocking file I/O; one process does this for a node's log: its agent, or else the worker that reads
the directory.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import msgspec
import structlog

from headrace.plugins import Clock, HeadraceError
from headrace.sources.cassandra.commitlog.manifest import file_of
from headrace.sources.cassandra.commitlog.segment import index_name, parse_name
from headrace.sources.cassandra.errors import SegmentError, SegmentKeyError
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs import last_seen, pins, rescued_copies
from headrace.sources.cassandra.logs.directory import LogDirectory, SegmentInfo, sizes_in
from headrace.sources.cassandra.logs.last_seen import Watched
from headrace.sources.cassandra.logs.pins import FOLDER, HoldDeniedError, HoldError, Need, Note
from headrace.sources.cassandra.logs.reread import OpenedSegment
from headrace.sources.cassandra.logs.space import spaces
from headrace.sources.cassandra.retention.figures import HoldFigures

TICK_MS: Final = 1_000
RESCUE_MS: Final = 600_000  # The age at which a segment goes, with its pending copies saved.
ALARM_MS: Final = 60_000  # Between two warnings of one kind.
PINS_MS: Final = 86_400_000  # Pins that are unchanged for this long may be of a removed job.
PINS_ALARM_MS: Final = 3_600_000
RATE_SEGMENTS: Final = 64  # Number of finished segments from which the write rate is computed.
FILLING: Final = 0.8  # Fraction of the hold's limit from which it warns.


class Disposal(msgspec.Struct, frozen=True):
    """The disposal of a finished segment: it is kept, deleted, or moved to `archive`.

    A segment is disposed of when it is at least `retention_ms` old. At most `bytes_max` are held,
    and nothing while fewer than `min_free` bytes of the disk are free; then Cassandra's links stay,
    or with `drop_oldest` the oldest segments are removed, needed or not.
    """

    keep: bool = True
    archive: Path | None = None
    retention_ms: int = 0
    bytes_max: int | None = None
    min_free: int = 0
    drop_oldest: bool = False


class SegmentRetention:
    """Holds and disposes of the segments of one log."""

    def __init__(
        self,
        log: LogDirectory,
        disposal: Disposal,
        clock: Clock,
        events: structlog.stdlib.BoundLogger,
    ) -> None:
        """Set the options; change no file yet."""
        self.notes = log.path / FOLDER
        self._log = log
        self._disposal = disposal
        self._clock = clock
        self._events = events
        self._next_ms = 0
        self._alarms: dict[str, int] = {}
        self._finished: deque[tuple[float, int]] = deque(maxlen=RATE_SEGMENTS)
        self._newest = 0
        self._full = False
        self._known: Watched | None = None
        self._seen: dict[Path, dict[str, int]] = {}  # Files and their sizes in bytes, by folder.

    @property
    def keeps_all(self) -> bool:
        """Whether this object disposes of nothing, or the directory does not exist."""
        return self._disposal.keep or not self._log.path.is_dir()

    def check(self) -> None:
        """Check that segments can be held and disposed of, if configured.

        Raises:
            HoldDeniedError: the directory, the hold or the archive is not writable, or the hold is
                on another file system.

        """
        if self._disposal.keep:
            return
        hold = self._log.hold
        for folder in filter(None, (self.notes, self._disposal.archive, hold)):
            try:
                folder.mkdir(parents=folder != self.notes, exist_ok=True)
                with NamedTemporaryFile(prefix=".", dir=folder):
                    pass
            except OSError as error:
                raise HoldDeniedError(
                    f"cannot be written: {error.strerror}",
                    place=str(folder),
                    hint="disposal: keep needs no right to write",
                ) from error
        if hold is not None:
            self._check_links(hold)

    def _check_links(self, hold: Path) -> None:
        with NamedTemporaryFile(prefix=".", dir=self.notes) as probe:
            linked = hold / Path(probe.name).name
            try:
                os.link(probe.name, linked)
                linked.unlink()
            except OSError as error:
                raise HoldDeniedError(
                    f"nothing of cdc_raw can be linked there: {error.strerror}",
                    place=str(hold),
                    hint="give a directory beside cdc_raw, on its file system and mount",
                ) from error

    def tick(self) -> None:
        """Hold new segments and dispose of unneeded ones, once per TICK_MS.

        Failures are logged and retried; readers are not blocked.
        """
        now_ms = self._clock.monotonic_ms()
        if self._disposal.keep or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + TICK_MS
        try:
            self.take()
            self.dispose()
        except HeadraceError as error:
            self._alarm("hold_pauses", error=str(error), error_code=error.code)

    def take(self) -> None:
        """Link new segments into the hold; remove Cassandra's links of those held and final.

        Raises:
            HoldError: a file cannot be linked or removed.
            LogUnreadableError: a directory cannot be read.

        """
        hold = self._log.hold
        if hold is None or self._disposal.keep:
            return
        self._seen.clear()
        with self._telling(self._log.path):
            here = self._segments_in(self._log.path)
        listed = {info.name: info for info in self._log.segments()}
        self._watch(hold, here, listed.values())
        self._observe(listed.values())
        with self._telling(hold):
            self._full = not self._make_room(0)
            if self._full:
                self._give_back(hold, here)
            for name in here:
                if self._holds(hold, name) or self._take(hold, name):
                    self._take_index(hold, index_name(name))
                    if name in listed and listed[name].final and not self._is_witness(name):
                        self._remove(self._log.path, name)
            # Segments that the node removed without ever writing an index had no CDC data.
            for name in set(self._segments_in(hold)) - set(here) - listed.keys():
                self._remove(hold, name)
        self._warn()

    def dispose(self) -> int:
        """Dispose of the final segments that no registered split needs. Return their number.

        The newest segment stays until there is a newer one: while no process watches, it shows that
        none after it was removed (see `gaps`). Before a job is registered, none is removed.

        Raises:
            HoldError: a pin cannot be read, or a file cannot be moved or removed.

        """
        return self._dispose(self._disposal.retention_ms, RESCUE_MS, None)

    def figures(self) -> HoldFigures:
        """Return the held and the remaining space."""
        self._seen.clear()
        return self._figures()

    def _figures(self) -> HoldFigures:
        here, hold = self._log.path, self._log.hold
        room, rate = max(0, -self._shortage(0)), self._rate()
        space = next(iter(spaces({"": here}, None)), None)
        return HoldFigures(
            held_bytes=0 if hold is None else self._bytes_in(hold),
            held_segments=0 if hold is None else len(self._segments_in(hold)),
            cdc_raw_bytes=sum(self._files(here).values()),
            room_bytes=room,
            retention_seconds=room / rate if rate else None,
            full=self._full,
            free_bytes=None if space is None else space.free_bytes,
            growth=rate or (None if space is None else space.growth),
        )

    # ---- holding ----

    def _watch(self, hold: Path, here: Sequence[str], listed: Collection[SegmentInfo]) -> None:
        """Note the segments in `cdc_raw`, and whether some may have been removed unseen."""
        before, names = self._watched(), set(here)
        now = before.after(
            [file_of(each.segment_id) for each in listed if each.name in names],
            {file_of(each.segment_id) for each in listed},
        )
        if now != before:
            with self._telling(hold):
                last_seen.save(hold, now)
            self._known = now

    def _watched(self) -> Watched:
        if self._known is None and self._log.hold is not None:
            self._known = last_seen.load(self._log.hold)
        return self._known or Watched()

    def _is_witness(self, name: str) -> bool:
        """Return whether the segment stays in `cdc_raw` as the newest that was seen there."""
        parsed = parse_name(name)
        return parsed is not None and parsed[1] == self._watched().witness

    def _holds(self, hold: Path, name: str) -> bool:
        """Return whether *hold* has a link to the same file as `cdc_raw`."""
        try:
            return (self._log.path / name).samefile(hold / name)
        except FileNotFoundError:
            return False

    def _take(self, hold: Path, name: str) -> bool:
        """Link a segment if there is room. Return whether it is held now."""
        try:
            found = (self._log.path / name).lstat()
            if not stat.S_ISREG(found.st_mode):
                return False
            if not self._make_room(found.st_size):
                self._full = True
                return False
            os.link(self._log.path / name, hold / name, follow_symlinks=False)
            self._files(hold)[name] = found.st_size
        except FileNotFoundError:  # The node just removed it.
            return False
        except FileExistsError:
            self._alarm("hold_differs", segment=name, place=str(hold))
            return False
        return True

    def _take_index(self, hold: Path, index: str) -> None:
        """Link an index if it exists; a replay creates a new file."""
        if self._holds(hold, index):
            return
        temporary = hold / f".{index}"
        temporary.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.link(self._log.path / index, temporary, follow_symlinks=False)
            temporary.replace(hold / index)

    def _remove(self, folder: Path, name: str) -> None:
        """Remove a segment and its index from *folder*."""
        for each in (name, index_name(name)):
            (folder / each).unlink(missing_ok=True)
            self._files(folder).pop(each, None)

    def _files(self, folder: Path) -> dict[str, int]:
        """Return the files in *folder* and their sizes; it is listed once per request."""
        if folder not in self._seen:
            self._seen[folder] = sizes_in(folder)
        return self._seen[folder]

    def _segments_in(self, folder: Path) -> Sequence[str]:
        """Return the names of the segments in *folder*, by ascending id."""
        named = ((parsed[1], name) for name in self._files(folder) if (parsed := parse_name(name)))
        return [name for _, name in sorted(named)]

    def _bytes_in(self, folder: Path) -> int:
        """Return the bytes of the segments in *folder*, without their indexes."""
        return sum(self._files(folder)[name] for name in self._segments_in(folder))

    # ---- bounds ----

    def _shortage(self, size: int) -> int:
        """Return how many bytes must be freed before *size* more can be held."""
        hold, most = self._log.hold or self._log.path, self._disposal.bytes_max
        disk = os.statvfs(hold)
        free = disk.f_bavail * disk.f_frsize
        over = [] if most is None else [self._bytes_in(hold) + size - most]
        return max([self._disposal.min_free + size - free, *over])

    def _make_room(self, size: int) -> bool:
        """Remove removable files until *size* more bytes fit. Return whether they do."""
        shortage = self._shortage(size)
        if shortage > 0:
            self._dispose(0, 0, shortage)
            shortage = self._shortage(size)
        if shortage > 0 and self._disposal.drop_oldest:
            self._drop(shortage)
            shortage = self._shortage(size)
        return shortage <= 0

    def _drop(self, shortage: int) -> None:
        """Remove the oldest segments without another link, whether needed or not.

        A job that needed one finds it removed: that is a gap (I10).
        """
        for info in self._log.segments()[:-1]:
            if shortage <= 0:
                return
            found = self._log.find(info.name).stat() if not info.missing else None
            if info.final and found is not None and found.st_nlink == 1:
                self._put_away(info)
                shortage -= found.st_size
                self._events.warning(
                    "hold_dropped", segment=file_of(info.segment_id), bytes=found.st_size
                )

    def _give_back(self, hold: Path, here: Sequence[str]) -> None:
        """Remove held links of segments that the node still has: its own limit protects it."""
        for name in here:
            if self._holds(hold, name):
                self._remove(hold, name)

    def _warn(self) -> None:
        """Warn that the hold is filling, or full."""
        most, now = self._disposal.bytes_max, self._figures()
        free = now.room_bytes if most is None else most
        if self._full:
            hint = "segments stay in cdc_raw, and count there; which job is behind?"
            self._alarm("hold_full", held_bytes=now.held_bytes, hint=hint)
        elif now.room_bytes < (1 - FILLING) * (free if most else now.held_bytes):
            self._alarm(
                "hold_filling",
                held_bytes=now.held_bytes,
                room_bytes=now.room_bytes,
                retention_seconds=now.retention_seconds,
            )

    def _observe(self, listed: Iterable[SegmentInfo]) -> None:
        """Note when segments were finished, and their sizes."""
        for info in listed:
            if info.final and info.segment_id > self._newest:
                self._newest = info.segment_id
                self._finished.append((self._log.modified_ms(info), self._log.size_of(info)))

    def _rate(self) -> float:
        """Return the recent write rate in bytes per second; 0 if it is unknown."""
        if len(self._finished) < 2:  # noqa: PLR2004 (a distance needs two)
            return 0.0
        span_ms = self._finished[-1][0] - self._finished[0][0]
        size = sum(size for _, size in self._finished) - self._finished[0][1]
        return size * 1000 / span_ms if span_ms > 0 else 0.0

    def _alarm(
        self, event: str, *, about: str = "", every_ms: int = ALARM_MS, **fields: object
    ) -> None:
        now_ms, kind = self._clock.monotonic_ms(), f"{event} {about}"
        if now_ms >= self._alarms.get(kind, now_ms):
            self._alarms[kind] = now_ms + every_ms
            self._events.warning(event, cdc_raw=str(self._log.path), **fields)

    # ---- disposal ----

    def _dispose(self, retention_ms: int, rescue_ms: int, enough: int | None) -> int:
        """Dispose of segments of this age until *enough* bytes are freed; None means all."""
        notes = [] if self._disposal.keep else pins.notes_in(self.notes)
        if not notes:
            return 0
        noted = [note.need for note in notes]
        now_ms = self._clock.wall_ms()
        gone, gone_bytes, newest = 0, 0, ""
        for info in self._log.segments()[:-1]:
            if enough is not None and gone_bytes >= enough:
                break
            age_ms = max(0, now_ms - self._log.modified_ms(info))
            if (
                info.final
                and not self._is_witness(info.name)
                and age_ms >= retention_ms
                and self._may_go(info, noted, is_old=age_ms >= rescue_ms)
            ):
                gone_bytes += self._log.size_of(info)
                self._put_away(info)
                gone, newest = gone + 1, info.name
        if gone:
            self._events.info(
                "segments_disposed",
                cdc_raw=str(self._log.path),
                segments=gone,
                size_bytes=gone_bytes,
                newest=newest,
                archive=None if self._disposal.archive is None else str(self._disposal.archive),
            )
        with self._telling(self.notes):
            # A split that has not started may need them when it commits.
            rescued_copies.keep_only(
                self.notes, lambda n: any(n in need.copies or need.whole(n) for need in noted)
            )
        self._warn_of_pins(notes, now_ms)
        return gone

    def _warn_of_pins(self, notes: Sequence[Note], now_ms: int) -> None:
        """Report pins that have not changed for a long time, and the segments kept for them."""
        old: dict[tuple[str, str], list[Note]] = {}
        for note in notes:
            if now_ms - note.written_ms >= PINS_MS:
                old.setdefault((note.need.job, note.store), []).append(note)
        final = [info for info in self._log.segments()[:-1] if info.final] if old else []
        for (job, store), theirs in old.items():
            kept = [i for i in final if any(note.need.whole(i.segment_id) for note in theirs)]
            if kept:
                self._alarm(
                    "segments_pinned",
                    about=f"{job} {store}",
                    every_ms=PINS_ALARM_MS,
                    job=job,
                    state=store,
                    splits=len(theirs),
                    age_seconds=int((now_ms - min(n.written_ms for n in theirs)) / 1000),
                    segments=len(kept),
                    bytes=sum(self._log.size_of(info) for info in kept),
                    hint="does the job still run? `headrace forget` removes the notes of one "
                    "that is gone",
                )

    def _may_go(self, info: SegmentInfo, noted: Sequence[Need], *, is_old: bool) -> bool:
        """Return whether no split needs a segment; needed copies of an *is_old* one are saved."""
        if any(need.whole(info.segment_id) for need in noted):
            return False
        file_id = file_of(info.segment_id)
        copies = {copy for need in noted for copy in need.copies.get(file_id, ())}
        return not copies or (is_old and self._rescue(info, sorted(copies)))

    def _rescue(self, info: SegmentInfo, copies: Sequence[tuple[int, int]]) -> bool:
        """Save copies of a segment. Return False if it cannot be read, so it stays."""
        try:
            file = self._log.open(info)
        except FileNotFoundError:
            return True
        try:
            # Without keys: encrypted segments are not rescued, and stay.
            opened = OpenedSegment(file, Keys(KeyOptions()), info)
            found = {position: opened.mutation(position, length) for position, length in copies}
        except (SegmentError, SegmentKeyError):
            return False
        finally:
            file.close()
        saved = {position: raw for position, raw in found.items() if raw is not None}
        with self._telling(self.notes):
            rescued_copies.save(self.notes, file_of(info.segment_id), opened.messaging, saved)
        return True

    def _put_away(self, info: SegmentInfo) -> None:
        """Archive or remove a segment and its index, in each folder."""
        with self._telling(self._log.path):
            for name in (info.name, index_name(info.name)):
                if self._disposal.archive is not None:
                    with contextlib.suppress(FileNotFoundError):
                        _move(self._log.find(name), self._disposal.archive)
                for folder in self._log.folders:
                    (folder / name).unlink(missing_ok=True)
                    self._seen.get(folder, {}).pop(name, None)

    @contextlib.contextmanager
    def _telling(self, place: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HoldError(str(error), place=str(place)) from error


def _move(path: Path, archive: Path) -> None:
    """Move a file, also to another disk; a partial copy never has its name."""
    archive.mkdir(parents=True, exist_ok=True)
    try:
        path.rename(archive / path.name)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        temporary = archive / f".{path.name}"
        try:
            shutil.copy2(path, temporary)
            temporary.replace(archive / path.name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)
