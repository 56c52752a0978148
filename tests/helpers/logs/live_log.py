"""A log that a node writes to: sections become durable when it syncs, and segments follow."""

from pathlib import Path

from headrace.sources.cassandra.forge.segments import COMPLETED, SEGMENT_ID, SegmentWriter
from headrace.sources.cassandra.forge.segments import write_segment as write
from helpers.logs.forged import SCHEMA, insert

KEYS = 3


class LiveLog:
    """Changes are numbers; number n is of key n modulo `KEYS`. Each has a place in the log."""

    def __init__(self, folder: Path) -> None:
        """Begin a segment."""
        self.folder = folder
        self.count = self.synced = 0
        self.places: list[tuple[int, int]] = []
        """Where the entry of each change ends: its segment, and the offset in it."""
        self.section_bytes_max = 0
        self._writer = SegmentWriter(segment_id=SEGMENT_ID)
        self._write(0)

    def source(self, **options: object) -> dict[str, object]:
        """Return options of a source that reads this log alone; its schema is beside the folder."""
        schema = self.folder.with_name("schema.cql")
        schema.write_text(SCHEMA.replace("'3'", "'1'"))
        alone = {"nodes": {"node": str(self.folder)}, "schema": str(schema), "consistency": "ONE"}
        return alone | {"splits": 2} | options

    def append(self, count: int, value_bytes: int = 20, *, from_us: int = 0) -> None:
        """Append changes, which are not durable yet; n is written *from_us* + n after `NOW_US`."""
        for number in range(self.count, self.count + count):
            value = f"{number:0{value_bytes}}".encode()
            self._writer.add(insert(f"key{number % KEYS}".encode(), value, at_us=from_us + number))
        self.count += count

    def sync(self, *, rolls: bool = False) -> None:
        """Make durable what was appended; with *rolls* the segment ends."""
        self.section_bytes_max = max(self.section_bytes_max, self._writer.unsynced)
        self._writer.sync()
        made = self._writer.forged()
        number = self._writer.segment_id
        known = sum(segment == number for segment, _ in self.places)
        self.places += [(number, end) for end in made.ends[known:]]
        self.synced = self.count
        self._write(made.durable, completed=rolls)
        if rolls:
            self._writer = SegmentWriter(segment_id=number + 1)
            self._write(0)

    def _write(self, durable: int, *, completed: bool = False) -> None:
        index = f"{durable}\n{COMPLETED}" if completed else f"{durable}"
        content = self._writer.forged(zeros=64).content
        write(self.folder, content, segment_id=self._writer.segment_id, index=index)
