"""Retention of forged logs, and a node that treats its files as Cassandra does."""

import os
from collections.abc import Sequence
from pathlib import Path

import structlog

from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.commitlog.segment import index_name
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import segment, write_segment
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.retention.disposal import Disposal, SegmentRetention
from headrace.sources.cassandra.retention.hold import Hold
from headrace.sources.cassandra.state.cdc_state import Marker
from helpers.logs.forged import SCHEMA, insert

COMPLETED = "1\nCOMPLETED"
DELETE = Disposal(keep=False)


def retention_of(
    log: LogDirectory, disposal: Disposal, clock: DrivenClock | None = None
) -> SegmentRetention:
    """Return the retention of *log*."""
    events = structlog.stdlib.get_logger()
    return SegmentRetention(log, disposal, clock or DrivenClock(), events)


def hold_on(retention: SegmentRetention, job: str, *, store: str = "") -> Hold:
    """Return the hold of *job* in the folder of *retention*."""
    return Hold(retention.notes, job, store=store, retention=retention)


class Node:
    """A node's folders: segments are written in `commitlog` and linked into `cdc_raw`."""

    def __init__(self, folder: Path) -> None:
        """Make the folders, but not `hold`, which headrace makes."""
        self.folder = folder
        self.commitlog, self.raw = folder / "commitlog", folder / "cdc_raw"
        self.hold = folder / "hold"
        for each in (self.commitlog, self.raw):
            each.mkdir(parents=True)

    @property
    def log(self) -> LogDirectory:
        """The node's log, as a reader with a hold sees it."""
        return LogDirectory(self.raw, hold=self.hold)

    def write(
        self, number: int, keys: Sequence[bytes] = (), *, index: str | None = COMPLETED
    ) -> None:
        """Write a segment of rows; without an *index* it has no CDC data."""
        made = segment([[insert(key, key) for key in keys]], segment_id=number)
        write_segment(self.commitlog, made.content, segment_id=number, index=None)
        os.link(self.commitlog / name(number), self.raw / name(number))
        if index is not None:
            (self.raw / index_name(name(number))).write_text(index)

    def complete(self, number: int) -> None:
        """Close a segment."""
        (self.raw / index_name(name(number))).write_text(COMPLETED)

    def discard(self, *numbers: int) -> None:
        """Remove flushed segments; those without an index leave `cdc_raw` too."""
        for number in numbers:
            (self.commitlog / name(number)).unlink()
            if not (self.raw / index_name(name(number))).exists():
                (self.raw / name(number)).unlink(missing_ok=True)

    def trim(self, *numbers: int) -> None:
        """Make room in `cdc_raw`, as `cdc_block_writes: false` does, whether it was read or not."""
        for number in numbers:
            for each in (name(number), index_name(name(number))):
                (self.raw / each).unlink(missing_ok=True)

    def replay(self, number: int) -> None:
        """Restart: a segment that was not flushed is linked again, with another index file."""
        path, index = self.raw / name(number), self.raw / index_name(name(number))
        if not path.exists():
            os.link(self.commitlog / name(number), path)
        index.unlink(missing_ok=True)
        index.write_text(COMPLETED)

    def in_raw(self) -> list[str]:
        """Return the names in `cdc_raw`, without headrace's folder."""
        return sorted(path.name for path in self.raw.iterdir() if path.name != ".headrace")

    def held(self) -> list[int]:
        """Return the ids of the segments in the hold."""
        return sorted(int(path.stem.split("-")[2]) for path in self.hold.glob("*.log"))

    def listed(self) -> list[int]:
        """Return the ids of the segments that a reader sees."""
        return [info.segment_id for info in self.log.segments()]


def name(number: int) -> str:
    """Return the name of a segment."""
    return f"CommitLog-7-{number}.log"


def hold(node: Node, disposal: Disposal = DELETE) -> Hold:
    """Return a job's hold, checked, whose only split needs everything."""
    retention = retention_of(node.log, disposal)
    retention.check()
    made = hold_on(retention, "orders")
    made.register_all(["0"])
    return made


def past(segment_id: int) -> Marker:
    """Return the marker of a reader that has read a segment to its end."""
    return Marker(segment_id, END_OFFSET)


def job(nodes: Sequence[Node], **options: object) -> dict[str, object]:
    """Return the options of a job over nodes with a hold."""
    path = nodes[0].folder.parent / "schema.cql"
    path.write_text(SCHEMA)
    places = {n.folder.name: {"path": str(n.raw), "hold": str(n.hold)} for n in nodes}
    return {
        "nodes": places,
        "schema": str(path),
        "splits": 1,
        "consistency": "ONE",
        "disposal": "delete",
        "hold.min_free": "0B",
        **options,
    }
