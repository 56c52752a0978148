"""Measures the lag of one job repeatedly; each look reads only changes since the last one."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from headrace.connector.control.jobs import JobText, job_text, source_in
from headrace.connector.foundation.job_file import read_job_file
from headrace.connector.obs.blame import making
from headrace.connector.runtime.making import read_only_context
from headrace.connector.stores.job import place_and_name
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import (
    Backlog,
    Batch,
    Demand,
    LogSpaces,
    Position,
    Reader,
    Resplitting,
    RetriableError,
    Source,
    Split,
)

if TYPE_CHECKING:
    from headrace.connector.stores.note_copy import NoteCopy

SOURCE_SECONDS_MAX: Final = 60.0  # How long to use a source's initial reads.

Json = Any  # JSON.


class _First(NamedTuple):
    """The time of the first change after a position, in µs since 1970; 0 if there was none.

    It is valid while the position is and, if there was none, while nothing is left to read.
    """

    stamp: int
    left_bytes: int
    time_us: int


class LagWatch:
    """Measures the lag of one job at each call. For one thread; it sets the working folder."""

    def __init__(self, path: Path, job: str) -> None:
        """Read nothing yet; *path* is the file of *job*."""
        self._path = path
        self._job = job
        self._place: Path | None = None
        self._notes: NoteCopy | None = None
        self._text: JobText | None = None
        self._made_s = 0.0
        self._source: Source | None = None
        self._is_read = False
        self._splits: Sequence[Split] = ()
        self._stamps: dict[str, int] = {}
        self._positions: dict[str, Position | None] = {}
        self._first: dict[str, _First] = {}

    def look(self) -> Json:
        """Return the lag of each part of the job, and the job's oldest unpublished change.

        `parts` has partition, bytes, files and problem of each part of each split. `oldest_us` is
        the time of that change, in µs since 1970; null if there is none or it is unknown. `spaces`
        has partition, used, limit and free bytes, and growth, of each log whose disk is known.
        Raises the plugin's errors, and then discards everything kept.
        """
        try:
            source = self._current()
            left = {
                split.split_id: source.backlog(split, self._positions.get(split.split_id))
                for split in self._splits
            }
            spaces = source.log_spaces() if isinstance(source, LogSpaces) else ()
            oldest_us = self._oldest_us(source, left)
        except BaseException:
            self.close()
            raise
        if self._is_read:
            self._drop()  # Only a new source may look for the first time.
        return {
            "parts": [
                [dict(part.partition), part.size_bytes, part.files, part.problem]
                for parts in left.values()
                for part in parts
            ],
            "oldest_us": oldest_us,
            "spaces": [*map(msgspec.structs.asdict, spaces)],
        }

    def close(self) -> None:
        """Forget everything. Safe to call twice."""
        self._drop()
        if self._notes is not None:
            self._notes.close()
        self._notes = self._text = None
        self._first = {}

    def _drop(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source, self._is_read = None, False

    def _current(self) -> Source:
        """Return the source, at the currently committed positions."""
        written = read_job_file(self._path)
        place, _ = place_and_name(self._path, written, self._job)
        if self._notes is None or place != self._place:
            self.close()
            self._place, self._notes = place, open_notes(place, create=False)
        self._notes.check()
        text = job_text(self._path, self._job, written=written, notes=self._notes)
        store = self._notes.store(self._job)
        stamps, changed = store.changed_states({} if text != self._text else self._stamps)
        os.chdir(self._path.parent)  # Paths in the file are relative to it.
        is_old = time.monotonic() - self._made_s >= SOURCE_SECONDS_MAX
        if text != self._text or is_old or stamps.keys() != self._stamps.keys():
            self._drop()
        self._text, self._stamps = text, stamps
        source = self._source or self._made(text, store.job_key())
        for state in changed:
            encoded = state.position
            known = source.decode_position(encoded) if encoded else None
            self._positions[state.split] = known
        self._positions = {split: self._positions[split] for split in stamps}
        return source

    def _made(self, text: JobText, job_key: bytes) -> Source:
        """Make the source again, and plan."""
        plugin, config = source_in(text, self._path)
        with making(plugin, "made", config):
            made = plugin(config, read_only_context(self._job, job_key))
        self._source, self._made_s = made, time.monotonic()
        # A new number of splits takes effect when the job runs.
        if self._stamps and isinstance(made, Resplitting):
            made.follow(list(self._stamps))
        self._splits = made.plan()
        return made

    def _oldest_us(self, source: Source, left: Mapping[str, Sequence[Backlog]]) -> int | None:
        """Return the time of the oldest unpublished change; None if there is none, or unknown.

        Reads only splits that have moved, or that had no change at the last read.
        """
        sizes = {split: sum(part.size_bytes for part in parts) for split, parts in left.items()}
        if not any(sizes.values()):
            self._first = {}
            return None
        asked = [split for split in self._splits if not self._knows(split.split_id, sizes)]
        self._is_read = bool(asked)
        with contextlib.suppress(RetriableError):  # A part that cannot be read now.
            readers = {
                split.split_id: source.open(split, self._positions.get(split.split_id))
                for split in asked
            }
            found = {split: _first_us(reader) for split, reader in readers.items()}
            for split, time_us in found.items():
                stamp = self._stamps.get(split, 0)
                self._first[split] = _First(stamp, sizes[split], time_us)
            times = (self._first[split].time_us for split in left)
            return min((time_us for time_us in times if time_us > 0), default=None)
        return None

    def _knows(self, split: str, sizes: Mapping[str, int]) -> bool:
        first = self._first.get(split)
        if first is None or first.stamp != self._stamps.get(split, 0):
            return False
        return first.time_us > 0 or first.left_bytes == sizes[split]


def _first_us(reader: Reader) -> int:
    """Return the time of the first change of *reader*; 0 if none is available at once."""
    batch = reader.read(Demand(records_max=1))
    if not isinstance(batch, Batch):
        return 0
    return next((record.timestamp_us for record in batch.records()), 0)
