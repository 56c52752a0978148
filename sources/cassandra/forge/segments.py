"""Writes segments as on disk: any layout of sections, wrapped or not, whole, torn or damaged."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.wire import MARKER_BYTES, entry, header, marker
from headrace.sources.cassandra.forge.wrapping import PLAIN, Wrapping

SEGMENT_ID: Final = 1_700_000_000_000
SEGMENT_BYTES: Final = 32 * 1024 * 1024  # Cassandra's default.
SECTION_BYTES: Final = 100_000
COMPLETED: Final = "COMPLETED"


class Forged(msgspec.Struct, frozen=True):
    """A segment: its bytes, and logical positions in it (3.1).

    `ends` and `sizes` are those of the entries, `section_ends` those of the sections;
    `header_bytes` is the position of the first sync marker, also in the file. `file_ends` are the
    ends of the sections in the file.
    """

    content: bytes
    header_bytes: int
    ends: Sequence[int]
    sizes: Sequence[int]
    section_ends: Sequence[int]
    file_ends: Sequence[int]

    @property
    def durable(self) -> int:
        """The durable offset for an index file: the logical end of the last section."""
        return self.section_ends[-1] if self.section_ends else self.header_bytes


class SegmentWriter:
    """Writes one segment, entry by entry."""

    def __init__(
        self, *, version: int = 7, segment_id: int = SEGMENT_ID, wrapping: Wrapping = PLAIN
    ) -> None:
        """Start with the header."""
        self.segment_id = segment_id
        self.version = version
        self._wrapping = wrapping
        self._file = bytearray(header(version, segment_id, wrapping.parameters))
        self._header_bytes = len(self._file)
        self._logical = len(self._file)
        self._section = bytearray()
        self._ends: list[int] = []
        self._sizes: list[int] = []
        self._section_ends: list[int] = []
        self._file_ends: list[int] = []

    @property
    def file_bytes(self) -> int:
        """Bytes of the file so far, without unsynced entries."""
        return len(self._file)

    @property
    def unsynced(self) -> int:
        """Bytes of entries since the last sync."""
        return len(self._section)

    def add(self, mutation: bytes) -> None:
        """Append the entry of *mutation*, without a sync."""
        self.add_entry(entry(mutation))

    def add_entry(self, framed: bytes) -> None:
        """Append an entry's bytes unchanged, valid or not."""
        self._section += framed
        self._sizes.append(len(framed))
        self._ends.append(self._logical + MARKER_BYTES + len(self._section))

    def sync(self) -> None:
        """End the section, even an empty one, and write its marker before it."""
        at = len(self._file)
        wrapped = self._wrapping.wrap(bytes(self._section))
        following = at + MARKER_BYTES + len(wrapped)
        self._file += marker(at, following, self.segment_id) + wrapped
        self._logical += MARKER_BYTES + len(self._section)
        self._section.clear()
        self._section_ends.append(self._logical)
        self._file_ends.append(following)

    def forged(self, *, zeros: int = 0) -> Forged:
        """Return the segment so far, followed by *zeros*.

        Unsynced entries follow the slot of an unwritten marker, as after a crash; a wrapped segment
        does not contain them.
        """
        rest = b""
        if self._section and self._wrapping.plain:
            rest = bytes(MARKER_BYTES) + bytes(self._section)
        synced = [end for end in self._ends if end <= self._logical]
        return Forged(
            bytes(self._file) + rest + bytes(zeros),
            self._header_bytes,
            tuple(synced),
            tuple(self._sizes[: len(synced)]),
            tuple(self._section_ends),
            tuple(self._file_ends),
        )


def segment(
    sections: Iterable[Iterable[bytes]],
    *,
    version: int = 7,
    segment_id: int = SEGMENT_ID,
    zeros: int = 64,
    wrapping: Wrapping = PLAIN,
) -> Forged:
    """Return a segment of *sections* of raw mutations, with *zeros* after the last one."""
    writer = SegmentWriter(version=version, segment_id=segment_id, wrapping=wrapping)
    for mutations in sections:
        for mutation in mutations:
            writer.add(mutation)
        writer.sync()
    return writer.forged(zeros=zeros if wrapping.plain else 0)


def write_segment(
    folder: Path,
    content: bytes,
    *,
    version: int = 7,
    segment_id: int = SEGMENT_ID,
    index: str | None = "0\nCOMPLETED",
) -> Path:
    """Write a segment, and its index unless that is None. Return the segment's path."""
    path = folder / f"CommitLog-{version}-{segment_id}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if index is not None:
            (folder / f"{path.stem}_cdc.idx").write_text(index)
    except OSError as error:
        raise ScriptError(f"cannot be written: {error.strerror}", place=str(path)) from error
    return path


def write_log(folder: Path, mutations: Iterable[bytes], *, first_id: int, version: int = 7) -> None:
    """Write *mutations* as a node's finished log: preallocated segments full of equal sections.

    There is a segment even without mutations.
    """
    writer = SegmentWriter(version=version, segment_id=first_id)
    for mutation in mutations:
        framed = entry(mutation)
        if writer.unsynced + len(framed) > SECTION_BYTES and writer.unsynced:
            writer.sync()
            if writer.file_bytes + SECTION_BYTES > SEGMENT_BYTES:
                _write_full(folder, writer)
                writer = SegmentWriter(version=version, segment_id=writer.segment_id + 1)
        writer.add_entry(framed)
    writer.sync()
    _write_full(folder, writer)


def _write_full(folder: Path, writer: SegmentWriter) -> None:
    made = writer.forged()
    path = write_segment(
        folder,
        made.content,
        version=writer.version,
        segment_id=writer.segment_id,
        index=f"{made.durable}\n{COMPLETED}",
    )
    os.truncate(path, max(SEGMENT_BYTES, len(made.content)))
