"""Estimates when the entries of a log were logged, from the write times of some of them.

A log does not contain times of logging. Clients can set any write times, and hints arrive late. So
this module samples entries where sections begin, ignores times at which the segment was not
written, and uses the middle half. For a log that is being read, it uses the last entries of the
latest turns. Blocking file and network I/O.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from typing import Final, NamedTuple

from headrace.plugins import HeadraceError
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.heads import first_write_us
from headrace.sources.cassandra.commitlog.manifest import file_of
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.keystore.keys import Keys
from headrace.sources.cassandra.logs.directory import LogDirectory, NodeLog, SegmentInfo
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.cdc_state import Marker

SAMPLED: Final = 16  # Entries where a section begins.
LATEST: Final = 3  # Turns of a log whose write times count.
APART_US: Final = 1_000_000  # Between what is surely earlier and what is later: clocks differ.
APART_BYTES: Final = 512 * 1024  # Between two places of a segment, at least.
_WINDOW_BYTES: Final = 4 * 1024
_ASKED_BYTES: Final = 1_000  # Of an agent, which sends by entries what is longer.
_MS_US: Final = 1_000
_NEVER: Final = float("inf")


class Logged(NamedTuple):
    """The times, in µs since 1970, between which entries soon after `place` were logged."""

    place: Marker
    oldest_us: float
    newest_us: float


class LatestTimes:
    """Between which write times a log was read last, by an entry of each of the latest turns.

    `is_any`: there were too few turns, so it may be as old as any.
    """

    __slots__ = ("_times", "is_any", "newest_us", "oldest_us")

    def __init__(self) -> None:
        """Start without times."""
        self.forget()

    def forget(self) -> None:
        """Drop all times: the log is read from another place now."""
        self._times: deque[int] = deque(maxlen=LATEST)
        self.oldest_us, self.newest_us, self.is_any = -_NEVER, _NEVER, True

    def note(self, raw: bytes, messaging: int) -> None:
        """Record the write time of *raw*, the beginning of the last entry of a turn, if any."""
        written_us = first_write_us(raw, messaging)
        if written_us is None:
            return
        self._times.append(written_us)
        self.newest_us = max(self._times)
        if len(self._times) == LATEST:
            self.oldest_us, self.is_any = min(self._times), False


def logged(
    log: NodeLog, segments: Sequence[SegmentInfo], first: int, keys: Keys
) -> Generator[Logged]:
    """Yield the times of places in *segments*, ascending from *first* on, then those of the end.

    A log in a directory has several places in each segment, other logs have one. A place that
    cannot be read may be of any time. *keys* open encrypted segments.
    """
    is_near = isinstance(log, LogDirectory)
    framer = Framer(_WINDOW_BYTES if is_near else _ASKED_BYTES)
    for segment in segments:
        count = 0
        with suppress(HeadraceError, OSError):  # Its reader says why.
            for found in _in_segment(log, segment, first, framer, keys):
                yield found
                count += 1
                if not is_near:
                    break
        if not count:
            yield Logged(Marker(segment.segment_id, first), -_NEVER, _NEVER)
        first = 0
    ended_us = _written(log, segments[-1])[1]
    yield Logged(Marker(segments[-1].segment_id + 1, 0), ended_us, ended_us)


def _in_segment(
    log: NodeLog, segment: SegmentInfo, first: int, framer: Framer, keys: Keys
) -> Iterator[Logged]:
    written, place = _written(log, segment), first
    with closing(log.open(segment)) as opened:
        open_segment(
            framer,
            opened.read_into,
            keys=keys,
            place=segment.name,
            resume=first,
            segment_id=segment.segment_id,
        )
        framer.allow(segment.limit, segment.until, segment.indexed)
        while framer.pass_sections(place) == constants.ENTRY:
            begin = framer.at if place > first else first
            if not (times := _sampled(framer)):
                return
            place = begin + APART_BYTES
            within = [time for time in times if written[0] <= time <= written[1]]
            if within:
                quarter = len(within) // 4
                within = sorted(within)[quarter : len(within) - quarter]
            between = (within[0], within[-1]) if within else written
            yield Logged(Marker(segment.segment_id, begin), *between)


def _sampled(framer: Framer) -> Sequence[int]:
    """Return the write times of some entries."""
    times = []
    for _ in range(SAMPLED):
        if framer.next_entry() != constants.ENTRY:
            break
        written_us = first_write_us(framer.entry(), framer.messaging)
        if written_us is not None:
            times.append(written_us)
    return times


def _written(log: NodeLog, segment: SegmentInfo) -> tuple[float, float]:
    """Return when the writer of a segment started, and when it last wrote the segment, in µs.

    The latter is infinite if the file's time is before the former.
    """
    begun_us = file_of(segment.segment_id) * _MS_US  # Ids begin with the former.
    ended_us = log.modified_ms(segment) * _MS_US
    return begun_us, ended_us if ended_us >= begun_us else _NEVER
