"""Finds places that users name in the logs, and sizes of backlogs: by names and sizes only."""

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace.plugins import Backlog, ConfigError, Problem
from headrace.sources.cassandra.commitlog.manifest import Stored, file_of
from headrace.sources.cassandra.errors import END_OFFSET, LogUnreadableError
from headrace.sources.cassandra.logs.directory import NodeLog, SegmentInfo
from headrace.sources.cassandra.ring.log_slots import LOG_SLOTS_MAX
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from headrace.sources.cassandra.state.gaps import START

Logs = Mapping[str, NodeLog]
_PLACE: Final = re.compile(r"(?:(?P<node>[^=:,]+)[=:])?(?P<segment>\d{1,19}):(?P<offset>\d{1,10})")
_EARLIEST, _LATEST = "earliest", "latest"
_HINT: Final = "earliest, latest, a time such as 2026-01-31T12:00:00Z, or segment:offset"


def acquaint(logs: Logs, state: CdcState) -> None:
    """Pass the manifests in *state* to *logs*; required before the logs are listed for it."""
    for node, log in logs.items():
        marker = state.furthest(node)
        if stored := state.manifests.get(node):
            log.manifest.learn(stored)
        elif marker != START:  # Of a release without manifests, or of a place that a user gave.
            log.manifest.begin_at(file_of(marker.segment_id))


def backlog(logs: Logs, state: CdcState | None) -> Sequence[Backlog]:
    """Return, for each node, the bytes and the segments of its log after the marker.

    For a log that cannot be listed now, the result has the reason.
    """
    found = []
    if state is not None:
        acquaint(logs, state)
    for node, log in logs.items():
        marker = state.markers.get(node) if state else None
        try:
            segments = log.segments()
        except LogUnreadableError as error:  # The other logs can still be listed.
            place = f"{error.place}: " if error.place else ""
            problem = f"{error.code}: {place}{error.message}"
            part = Backlog(partition={"node": node}, size_bytes=0, files=0, problem=problem)
            found.append(part)
            continue
        sizes = [left_of(log, segment, marker or Marker(0, 0)) for segment in segments]
        left = [size for size in sizes if size]
        found.append(Backlog(partition={"node": node}, size_bytes=sum(left), files=len(left)))
    return found


def unread_bytes(log: NodeLog, marker: Marker) -> int:
    """Return the bytes of a log after *marker*. Raises as `segments`."""
    return sum(left_of(log, segment, marker) for segment in log.segments())


def stretches(log: NodeLog, marker: Marker, size_bytes: int) -> Sequence[tuple[Marker, Marker]]:
    """Divide the log after *marker* into parts of about *size_bytes*, in ascending order.

    A segment is divided only if it is larger. The last part of a compressed one is larger.
    """
    found: list[tuple[Marker, Marker]] = []
    begin, at, taken = marker, marker, 0
    for segment in log.segments():
        left = left_of(log, segment, marker)
        if not left:
            continue
        if taken and taken + left > size_bytes:
            found.append((begin, at))
            begin, taken = at, 0
        first = first_behind(segment, marker)
        parts = -(-left // size_bytes)
        for number in range(1, parts):
            at = Marker(segment.segment_id, first + left * number // parts)
            found.append((begin, at))
            begin = at
        taken += left // parts
        at = end_of(segment)
    return [*found, (begin, at)] if taken else found


def spared_bytes(
    log: NodeLog, marker: Marker, spared: Callable[[SegmentInfo], Sequence[tuple[int, int]]]
) -> int:
    """Return the bytes after *marker* in those parts of segments that *spared* returns."""
    return sum(
        max(0, end - max(begin, first_behind(segment, marker)))
        for segment in log.segments()
        if segment.segment_id >= marker.segment_id
        for begin, end in spared(segment)
    )


def located(logs: Logs, state: CdcState, target: str) -> CdcState:
    """Return *state* with its markers moved to *target*.

    Raises:
        ConfigError: no log has this place.

    """
    acquaint(logs, state)
    for node, offset in _offsets(logs, target.strip()).items():
        if node in state.hosts or len(logs) <= LOG_SLOTS_MAX:  # Otherwise the split does not read.
            state = state.moved({"node": node}, offset)
    return replace(state, manifests=manifests_of(logs))


def check_place(target: str) -> None:
    """Raise ConfigError unless *target* is a valid place."""
    _places(target.strip())


def manifests_of(logs: Logs) -> Mapping[str, Stored]:
    """Return what is listed, so that what a log has below a marker is old."""
    for log in logs.values():
        log.segments()
    return {node: log.manifest.stored for node, log in logs.items()}


def _offsets(logs: Logs, target: str) -> Mapping[str, Mapping[str, int | str] | None]:
    if target.lower() == _EARLIEST:
        return dict.fromkeys(logs)
    if target.lower() == _LATEST:
        return {node: _end(log) for node, log in logs.items()}
    if (time_ms := _time_ms(target)) is not None:
        return {node: _from_time(log, time_ms) for node, log in logs.items()}
    offsets: dict[str, Mapping[str, int | str] | None] = {}
    for place in _places(target):
        node = _node_of(logs, place["node"], int(place["segment"]))
        number = logs[node].manifest.number(int(place["segment"])) or 0
        offsets[node] = Marker(number, int(place["offset"])).shown()
    return offsets


def _places(target: str) -> Sequence[re.Match[str]]:
    """Return the segments and offsets in *target*; an empty result for a word or a time."""
    if target.lower() in (_EARLIEST, _LATEST) or _time_ms(target) is not None:
        return ()
    found = []
    for part in target.split(","):
        place = _PLACE.fullmatch(part.strip())
        if place is None:
            raise _no_position(f"{part.strip()[:48]!r} is not a position", _HINT)
        found.append(place)
    return found


def _time_ms(target: str) -> float | None:
    """Return *target* in ms since 1970, or None if it is not a time. The default zone is UTC."""
    try:
        time = dt.datetime.fromisoformat(target)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=dt.UTC)).timestamp() * 1000


def _node_of(logs: Logs, node: str | None, segment_id: int) -> str:
    holders = [
        name
        for name, log in logs.items()
        if segment_id in {file_of(segment.segment_id) for segment in log.segments()}
    ]
    if node is not None and node not in logs:
        raise _no_position(f"node {node[:48]!r} is unknown", f"the nodes are {', '.join(logs)}")
    if not holders or (node is not None and node not in holders):
        where = f"of {node}" if node else "of any node"
        raise _no_position(f"no log {where} has segment {segment_id}", "SHOW OFFSETS shows some")
    if node is None and len(holders) > 1:
        hint = f"write which: {holders[0]}:{segment_id}:0"
        raise _no_position(f"segment {segment_id} is in the logs of {', '.join(holders)}", hint)
    return node or holders[0]


def _end(log: NodeLog) -> Mapping[str, int | str] | None:
    """Return the current end of *log*; None if it is empty."""
    segments = log.segments()
    if not segments:
        return None
    return end_of(segments[-1]).shown()


def end_of(segment: SegmentInfo) -> Marker:
    """Return the place up to which a segment may be read."""
    return Marker(segment.segment_id, segment.end)


def _from_time(log: NodeLog, time_ms: float) -> Mapping[str, int | str] | None:
    """Return the start of the first segment written at or after a time; otherwise the log's end.

    All later mutations are after this place. Earlier ones can be after it, too.
    """
    for segment in log.segments():
        # Ids begin with the node's start time in ms. File times can be lost.
        if max(log.modified_ms(segment), file_of(segment.segment_id)) >= time_ms:
            return Marker(segment.segment_id, 0).shown()
    return _end(log)


def first_behind(segment: SegmentInfo, marker: Marker) -> int:
    """Return where in *segment* lies what is behind *marker*."""
    return marker.offset if segment.segment_id == marker.segment_id else 0


def left_of(log: NodeLog, segment: SegmentInfo, marker: Marker) -> int:
    """Return the bytes of *segment* that lie behind *marker*; of a packed one, about as many."""
    if segment.segment_id < marker.segment_id:
        return 0
    read = first_behind(segment, marker)
    if segment.end != END_OFFSET:
        return max(0, segment.end - read)
    if read == END_OFFSET:
        return 0
    size = log.size_of(segment)
    return max(1, size - read) if size else 0


def _no_position(message: str, hint: str) -> ConfigError:
    return ConfigError([Problem("position", message, hint)])
