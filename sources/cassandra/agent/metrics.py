"""Metrics of source and agent: data read, and the space of `cdc_raw` and hold.

Called on other threads than the reader's: it reads numbers and directories, and stores nothing.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.plugins.metrics import Measure, Sample, counter, gauge
from headrace.sources.cassandra.commitlog.segment import indexed_segments
from headrace.sources.cassandra.logs.directory import sizes_in

if TYPE_CHECKING:
    from headrace.sources.cassandra.reading.cursor import LogCursor
    from headrace.sources.cassandra.resources import Parts
    from headrace.sources.cassandra.retention.figures import HoldFigures


def measures_of(parts: "Parts") -> Sequence[Measure]:
    """Return the measures of a source."""
    found = space_measures(directories(parts.config.nodes), parts.cdc_bytes_max)
    if parts.reading is not None:
        pump = parts.reading.pump
        away, absent = set(pump.unreachable), pump.absent()
        read = [({"node": cursor.node}, cursor.read_bytes) for cursor in pump.cursors]
        started = [({"node": cursor.node}, cursor.segments_read) for cursor in pump.cursors]
        paths = directories(parts.config.nodes)
        behind = [({"node": c.node}, _unread(c, paths.get(c.node))) for c in pump.cursors]
        found += [
            counter("headrace_log_segments_total", "Segments of a log that were started.", started),
            gauge("headrace_unread_segments", "Segments of a log that are not read.", behind),
            counter("headrace_log_read_bytes_total", "Read of a log, unpacked.", read),
            counter(
                "headrace_log_read_seconds_total",
                "Reading logs: framing, digests and agreement are in it.",
                [({}, pump.read_ms / 1000)],
            ),
            gauge(
                "headrace_log_unreachable",
                "1 for a log that cannot be read now.",
                [({"node": c.node}, int(c.node in away)) for c in pump.cursors],
            ),
            gauge(
                "headrace_log_absent",
                "1 for a log that split time does not wait for any more.",
                [({"node": c.node}, int(c.node in absent)) for c in pump.cursors],
            ),
        ]
    return found


def _unread(cursor: "LogCursor", path: Path | None) -> int:
    """Count the segments with data after a cursor: listed, or added to *path* since."""
    listed, at = cursor.listed, cursor.marker
    names = {segment.name for segment in listed}
    unread = sum(
        (at.segment_id, at.offset) < (s.segment_id, s.end) and not s.missing and s.end > 0
        for s in listed
    )
    if path is not None:
        with suppress(OSError):  # Its reader reports the error.
            unread += sum(n not in names for n in indexed_segments(sizes_in(path)).values())
    return unread


def directories(nodes: Mapping[str, object]) -> Mapping[str, Path]:
    """Return the `cdc_raw` of each node on this machine."""
    paths = {
        n: node.get("path") if isinstance(node, Mapping) else node for n, node in nodes.items()
    }
    return {name: Path(str(path)) for name, path in paths.items() if path}


def space_measures(paths: Mapping[str, Path], bytes_max: int | None) -> list[Measure]:
    """Return the size of each directory, its limit, and the free space of its disk."""
    used: list[Sample] = []
    free: list[Sample] = []
    for node, path in paths.items():
        with suppress(OSError):  # Its reader reports the error.
            used.append(({"node": node}, sum(sizes_in(path).values())))
            disk = os.statvfs(path)
            free.append(({"node": node}, disk.f_bavail * disk.f_frsize))
    most = [] if bytes_max is None else [({"node": node}, bytes_max) for node in paths]
    return [
        gauge("headrace_cdc_raw_bytes", "Of segments and indexes in cdc_raw.", used),
        gauge("headrace_cdc_raw_limit_bytes", "cdc_total_space, if a node reported it.", most),
        gauge("headrace_cdc_raw_free_bytes", "Free on the disk of cdc_raw.", free),
    ]


def agent_measures(
    figures: "HoldFigures", sent_bytes: int, requests: Mapping[int, int]
) -> Sequence[Measure]:
    """Return an agent's metrics of its node; *requests* are counted by response status."""
    answered = [({"status": str(status)}, count) for status, count in sorted(requests.items())]
    lasts = figures.retention_seconds
    amounts = {
        "headrace_cdc_raw_bytes": ("Of segments and indexes in cdc_raw.", figures.cdc_raw_bytes),
        "headrace_hold_bytes": ("Of segments that are held.", figures.held_bytes),
        "headrace_hold_segments": ("Segments that are held.", figures.held_segments),
        "headrace_hold_room_bytes": ("What more can be held.", figures.room_bytes),
        "headrace_hold_full": ("1 when something is not held.", int(figures.full)),
    }
    return [
        *(gauge(name, doc, [({}, amount)]) for name, (doc, amount) in amounts.items()),
        gauge(
            "headrace_hold_retention_seconds",
            "How long the room lasts at the recent rate of writing.",
            [] if lasts is None else [({}, lasts)],
        ),
        counter("headrace_agent_sent_bytes_total", "Sent of segments.", [({}, sent_bytes)]),
        counter("headrace_agent_requests_total", "Requests that were answered.", answered),
    ]
