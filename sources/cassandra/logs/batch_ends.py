"""Chooses where a batch of several logs ends: what they hold up to there was logged together.

The ends are chosen before a batch is read, by write times: see `logged_times`. Where these do not
say which log is ahead, each comes closer to its end by the same part.
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
    """What is taken of a log at once, and when it was logged, in µs since 1970."""

    size: int
    begin: Marker
    end: Marker
    oldest_us: float = 0
    newest_us: float = 0


@dataclass(slots=True)
class _Way:
    """A log on its way to its end: `part` of that is behind it, `left` bytes are before it."""

    steps: Iterator[_Step]
    next: _Step | None
    left: int
    part: float = 0

    def reached(self) -> float:
        """Return the part of the way behind the next step."""
        assert self.next is not None  # noqa: S101 (else it is at its end)
        return self.part + (1 - self.part) * self.next.size / max(1, self.left)


def ahead(logs: Logs, state: CdcState, size_bytes: int, keys: Keys) -> CdcState:
    """Return *state* with its markers moved on by about *size_bytes* of all logs together.

    By steps within segments, up to what is durable; at least by one step if there is any. *keys*
    open encrypted segments. If all is taken, no segment is opened.
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
    """Return where the logs end that have a step of a batch."""
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
    """Return the log whose next step is taken; empty if all are at their ends.

    What is sure to be logged later than all of another log's next step waits for that.
    """
    steps = {node: way.next for node, way in ways.items() if way.next is not None}
    if not steps:
        return ""
    first_us = min(step.newest_us for step in steps.values()) + APART_US
    ready = [node for node, step in steps.items() if step.oldest_us <= first_us]
    found = min(ready, key=lambda node: ways[node].reached())
    for node in steps.keys() - ready:  # From where it waits on, it has the same part as others.
        ways[node].part = max(ways[node].part, ways[found].reached())
    return found


def _left_of(log: NodeLog, marker: Marker) -> Left:
    """Return the segments with anything behind *marker*, and how many bytes, unpacked if known."""
    found = []
    for segment in log.segments():
        if segment.end and end_of(segment) > marker:
            known = max(0, segment.indexed - first_behind(segment, marker))
            found.append((segment, max(known, left_of(log, segment, marker))))
    return found


def _steps(left: Left, marker: Marker) -> Iterator[_Step]:
    """Yield the steps of a log, without their times.

    A place within a final segment is before the end of its sections, which only its index knows.
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
    """Yield *steps* with times, of the places before and behind the beginning of each."""
    before, behind = next(times), next(times)
    for step in steps:
        while behind.place <= step.begin:
            before, behind = behind, next(times)
        newest_us = max(before.newest_us, behind.newest_us)
        yield step._replace(oldest_us=before.oldest_us, newest_us=newest_us)
