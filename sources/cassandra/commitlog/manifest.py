"""The manifest of a log: the segments that were listed, and their log generations. Pure.

Segment ids grow, so everything below a marker was read. But a node that was set up again, or whose
clock was set back, starts over with lower ids: another log *generation*. A segment's *number*
combines its generation, the higher part, and its id; a segment that is listed later never has a
lower number. In the first generation, numbers equal ids. For one thread.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Annotated, Final

import msgspec

from headrace.sources.cassandra.commitlog.segment import ID_BEHIND

# Ids of one run of a node are consecutive; a restart begins with the time in ms.
RUN_GAP_MAX: Final = 1_000
GENERATION_BEHIND: Final = 1 << 15  # Above all generations, so that numbers have 63 bits.
RUNS_MAX: Final = 256  # Of remembered ids; more only for existing segments.

_Generation = Annotated[int, msgspec.Meta(ge=0, lt=GENERATION_BEHIND)]
_Step = Annotated[int, msgspec.Meta(ge=0, lt=ID_BEHIND)]
# Per generation, its runs of ids, first and last; each number is the difference from the previous
# one.
Stored = tuple[tuple[_Generation, tuple[_Step, ...]], ...]
_Run = tuple[int, int]
_Runs = dict[int, list[_Run]]  # By generation, ascending.


def file_of(number: int) -> int:
    """Return the id in the file name of the segment with this number."""
    return number % ID_BEHIND


def place_of(number: int) -> tuple[int, int]:
    """Return the generation, from 0, and the id of the segment with this number."""
    return divmod(number, ID_BEHIND)


def number_in(generation: int, file_id: int) -> int:
    """Return the number of the segment with this generation and id."""
    return generation * ID_BEHIND + file_id


class Manifest:
    """The manifest of one log. `generation` is the newest one."""

    def __init__(self, stored: Stored = ()) -> None:
        """Start with the *stored* content."""
        self.generation = 0
        self._runs: _Runs = {}
        self._learned: _Runs = {}  # The part of `_runs` from states.
        self._heard: _Runs = {}  # The part from pins; used only without states.
        self._came: list[Collection[int]] = []  # The others, in the order of listing.
        self._stood = -1
        self._numbers: dict[int, int] = {}  # Of the last listing.
        self.stored: Stored = ()
        """The known segments, to be stored, without those that were removed long ago."""
        self.learn(stored)

    def learn(self, stored: Stored) -> None:
        """Merge another manifest of this log.

        Segments that were listed before are renumbered, as if they were listed after it.
        """
        learned = _together(self._learned, _stored_runs(stored))
        if learned != self._learned:
            self._learned = learned
            self._renumber()

    def hear(self, stored: Stored) -> None:
        """Merge the manifest of a job's pin, as long as no state was learned.

        A job that started later numbered its segments from the beginning. To a job that read before
        they existed, they would seem to have been read.
        """
        self._heard = _together(self._heard, _stored_runs(stored))
        self._renumber()

    def begin_at(self, file_id: int) -> None:
        """Set the position of a state without a manifest: existing segments below it were read.

        If all segments are below it, they are another generation.
        """
        if file_id > self._stood:
            self._stood = file_id
            self._renumber()

    def number(self, file_id: int) -> int | None:
        """Return the number of a segment; None if it was not listed."""
        for generation in sorted(self._runs, reverse=True):
            runs = self._runs[generation]
            at = bisect_right(runs, file_id, key=itemgetter(0)) - 1
            if at >= 0 and file_id <= runs[at][1]:
                return number_in(generation, file_id)
        return None

    def note(self, listed: Collection[int]) -> Mapping[int, int]:
        """Assign numbers to the ids that are listed now, and return them.

        A new id that is lower than those listed before starts a generation, and so does one that
        follows the end of an older generation: no new segment gets a number below those listed.
        """
        if listed != self._numbers.keys():
            self._numbers = dict.fromkeys(listed, 0)
            self._take([file_id for file_id in listed if self.number(file_id) is None])
            self._show()
        return self._numbers

    def _renumber(self) -> None:
        self._runs = dict(self._learned or self._heard)
        self.generation = max(self._runs, default=0)
        came, self._came = self._came, []
        heard = set(self._numbers).difference(*came)  # They existed before the listings.
        for ids in (heard, *came):
            self._take([file_id for file_id in ids if self.number(file_id) is None])
        self._show()

    def _take(self, fresh: Sequence[int]) -> None:
        """Assign numbers to segments that were not listed before."""
        if not fresh:
            return
        if not self._runs and max(fresh) < self._stood:
            self._runs = {0: [(self._stood, self._stood)]}
        ends = {each: runs[-1][1] for each, runs in self._runs.items()}
        newest, behind, made = self.generation, list[int](), dict[int, list[_Run]]()
        for file_id in sorted(fresh):
            # First those that follow the end of the newest generation.
            if _follows(file_id, ends.get(newest, -1)):
                ends[newest] = file_id
                made.setdefault(newest, []).append((file_id, file_id))
            else:
                behind.append(file_id)
        for file_id in behind:
            if not _belongs(file_id, newest, ends):
                newest += 1
            ends[newest] = file_id
            made.setdefault(newest, []).append((file_id, file_id))
        self._runs = _together(self._runs, made)
        self.generation = newest
        self._came.append(fresh)
        if len(self._came) > RUNS_MAX:  # By now, further states add nothing.
            self._learned, self._came = dict(self._runs), []

    def _show(self) -> None:
        self._forget(sum(map(len, self._runs.values())) - RUNS_MAX)
        self.stored = tuple((each, tuple(_steps(self._runs[each]))) for each in sorted(self._runs))
        self._numbers = {file_id: self.number(file_id) or 0 for file_id in self._numbers}

    def _forget(self, excess: int) -> None:
        """Forget the oldest runs without existing segments; never the last run."""
        newest = max(self._runs, default=0)
        for generation in sorted(self._runs) if excess > 0 else ():
            kept = []
            for run in self._runs[generation]:
                there = any(run[0] <= file_id <= run[1] for file_id in self._numbers)
                is_last = generation == newest and run is self._runs[newest][-1]
                if excess <= 0 or there or is_last:
                    kept.append(run)
                else:
                    excess -= 1
            self._runs[generation] = kept
        self._runs = {each: runs for each, runs in self._runs.items() if runs}


def _follows(file_id: int, end: int) -> bool:
    """Return whether a segment was made in the run of the node that contains *end*."""
    return 0 < file_id - end <= RUN_GAP_MAX


def _belongs(file_id: int, newest: int, ends: Mapping[int, int]) -> bool:
    """Return whether a new segment is of the *newest* generation; *ends* are their last ids."""
    end = ends.get(newest, -1)
    goes_on = any(_follows(file_id, other) for each, other in ends.items() if each != newest)
    return file_id > end and (_follows(file_id, end) or not goes_on)


def _together(runs: _Runs, more: _Runs) -> _Runs:
    return {
        each: _joined([*runs.get(each, ()), *more.get(each, ())])
        for each in runs.keys() | more.keys()
    }


def _joined(runs: Sequence[_Run]) -> list[_Run]:
    """Return the same ids in the fewest possible runs, ascending."""
    made: list[_Run] = []
    for first, last in sorted(runs):
        if made and first <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(last, made[-1][1])
        else:
            made.append((first, last))
    return made


def _steps(runs: Sequence[_Run]) -> Iterator[int]:
    at = 0
    for first, last in runs:
        yield first - at
        yield last - first
        at = last


def _stored_runs(stored: Stored) -> _Runs:
    return {each: list(_runs_of(steps)) for each, steps in stored}


def _runs_of(steps: Sequence[int]) -> Iterator[_Run]:
    at = 0
    for before, length in zip(steps[::2], steps[1::2], strict=False):
        first = at + before
        at = first + length
        yield first, at
