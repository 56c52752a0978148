"""Chooses the end of a batch in each of several logs, at about the same time of logging.

The ends are chosen before the batch is read, by write times: see `logged_times`. If these do not
show which log is ahead, all logs advance by the same share of their backlog.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.keystore.keys import Keys
from headrace.sources.cassandra.logs.directory import NodeLog, SegmentInfo
from headrace.sources.cassandra.logs.logged_times import APART_BYTES, APART_US, Logged, logged
from headrace.sources.cassandra.logs.seek import (
    Logs,
    acquaint,
    end_of,
    first_behind,
    left_of,
    manifests_of,
)
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from headrace.sources.cassandra.state.gaps import START

STEP_BYTES: Final = APART_BYTES  # As much as a worker reads of one log before the next one.

Left = Sequence[tuple[SegmentInfo, int]]  # Segments, and how much of each is left.


class _Step(NamedTuple):
    """The smallest part of a log that a batch takes, and its times of logging, in µs since 1970."""

    size: int
    begin: Marker
    end: Marker
    oldest_us: float = 0
    newest_us: float = 0


@dataclass(slots=True)
class _Way:
    """The progress of a log: the share `part` of its backlog is taken, `left` bytes are not."""

    steps: Iterator[_Step]
    next: _Step | None
    left: int
    part: float = 0

    def reached(self) -> float:
        """Return the share of the backlog that is taken with the next step."""
        assert self.next is not None  # noqa: S101 (else it is at its end)
        return self.part + (1 - self.part) * self.next.size / max(1, self.left)


def ahead(logs: Logs, state: CdcState, size_bytes: int, keys: Keys) -> CdcState:
    """Return *state* with its markers advanced by about *size_bytes*, summed over all logs.

    Markers advance by steps within segments, up to the durable offset, and by at least one step if
    any is left. *keys* open encrypted segments. If the batch takes all, no segment is opened.
    """
    acquaint(logs, state)
    markers = {node: state.markers.get(node, START) for node in logs}
    left = {node: found for node, log in logs.items() if (found := _left_of(log, markers[node]))}
    if sum(size for each in left.values() for _, size in each) <= size_bytes:
        markers |= {node: end_of(each[-1][0]) for node, each in left.items()}
    else:
        markers |= _ends(logs, left, markers, size_bytes, keys)
    return replace(state, markers=markers, manifests=manifests_of(logs))


def _ends(
    logs: Logs, left: Mapping[str, Left], begun: Mapping[str, Marker], size_bytes: int, keys: Keys
) -> Mapping[str, Marker]:
    """Return the ends of a batch, for the logs of which it takes a step."""
    ends: dict[str, Marker] = {}
    taken = 0
    with ExitStack() as opened:
        ways = {}
        for node, each in left.items():
            steps = _steps(each, begun[node])
            if len(left) > 1:
                segments, first = [segment for segment, _ in each], each[0][0]
                times = logged(logs[node], segments, first_behind(first, begun[node]), keys)
                opened.enter_context(closing(times))
                steps = _timed(steps, times)
            ways[node] = _Way(steps, next(steps, None), sum(size for _, size in each))
        while node := _next(ways):
            way = ways[node]
            assert way.next is not None  # noqa: S101 (it is not at its end)
            if taken and taken + way.next.size > size_bytes:
                break
            taken += way.next.size
            ends[node] = way.next.end
            way.part, way.left = way.reached(), way.left - way.next.size
            way.next = next(way.steps, None)
    return ends


def _next(ways: Mapping[str, _Way]) -> str:
    """Return the log whose step is taken next; empty if all logs are at their ends.

    A log waits while its next step was surely logged later than the whole next step of another log.
    """
    steps = {node: way.next for node, way in ways.items() if way.next is not None}
    if not steps:
        return ""
    first_us = min(step.newest_us for step in steps.values()) + APART_US
    ready = [node for node, step in steps.items() if step.oldest_us <= first_us]
    found = min(ready, key=lambda node: ways[node].reached())
    for node in steps.keys() - ready:  # A log that waited continues with the share of the others.
        ways[node].part = max(ways[node].part, ways[found].reached())
    return found


def _left_of(log: NodeLog, marker: Marker) -> Left:
    """Return the segments with data after *marker* and their bytes, unpacked if known."""
    found = []
    for segment in log.segments():
        if segment.end and end_of(segment) > marker:
            known = max(0, segment.indexed - first_behind(segment, marker))
            found.append((segment, max(known, left_of(log, segment, marker))))
    return found


def _steps(left: Left, marker: Marker) -> Iterator[_Step]:
    """Yield the steps of a log, without their times.

    A place within a final segment must be before the end of its sections, which only its index
    knows.
    """
    for segment, size in left:
        first = first_behind(segment, marker)
        known = segment.indexed if segment.end == END_OFFSET else segment.end
        begin, begun = Marker(segment.segment_id, first), 0
        for done in range(STEP_BYTES, min(size, known - first), STEP_BYTES):
            end = Marker(segment.segment_id, first + done)
            yield _Step(STEP_BYTES, begin, end)
            begin, begun = end, done
        yield _Step(size - begun, begin, end_of(segment))


def _timed(steps: Iterator[_Step], times: Iterator[Logged]) -> Iterator[_Step]:
    """Yield *steps* with the times of the places before and after the start of each."""
    before, behind = next(times), next(times)
    for step in steps:
        while behind.place <= step.begin:
            before, behind = behind, next(times)
        newest_us = max(before.newest_us, behind.newest_us)
        yield step._replace(oldest_us=before.oldest_us, newest_us=newest_us)
