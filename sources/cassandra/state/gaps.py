"""Gaps: parts of a log that were lost before they were read, or are damaged (I10). Pure.

Missing ids alone prove nothing: Cassandra also deletes segments without CDC data. A gap is proven
if a missing segment was listed before, or was being read. If the log was not listed for a while, an
already read segment that still exists shows that none after it was removed, because Cassandra
removes the oldest first; without one, missing ids may be a gap.

A damaged part may have held anything. If the nodes whose logs lost a part at about the same time
could meet the level by themselves, no other log may show a mutation that had met it: that is a
loss. Otherwise the damage is covered: another log has each such mutation.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from headrace.plugins import FatalError, Notice
from headrace.plugins.positions import ACCEPTED, OPEN, PASSED
from headrace.sources.cassandra.commitlog.manifest import file_of
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.state.cdc_state import DAMAGED, Marker, StoredGap

MARKER: Final = "marker"
VANISHED: Final = "vanished"
POSSIBLE: Final = "possible"
RETURNED: Final = "returned"

MENDED: Final = "mended"
COVERED: Final = "covered"

FAIL: Final = "fail"
EXPIRE: Final = "expire"
ASSUME: Final = "assume"
POLICIES: Final = (FAIL, EXPIRE, ASSUME)

KEPT_MAX: Final = 100  # Gaps kept in a state; the oldest closed ones are dropped first.
START: Final = Marker(0, 0)

_WORDS: Final = {
    MARKER: "segment {} vanished before it was read to its end",
    VANISHED: "segment {} vanished before it was read",
    RETURNED: "from segment {} on it was logged while the log could not be read, for so long that "
    "copies may be of mutations that are forgotten",
    POSSIBLE: "segments from {} on are missing, and the log was not listed when they were deleted",
    DAMAGED: "segment {} is damaged; what it held may be in no log that is read",
}
_THERE: Final = (MARKER, RETURNED, DAMAGED)  # The first segment of such a gap was listed.


class LogGapError(FatalError):
    """Part of a log was deleted before it was read, or is damaged (I10): `gap` says which."""

    code = "log_gap"
    exit_status = 4

    def __init__(self, message: str, *, place: str, gap: StoredGap, hint: str) -> None:
        """Stop before *gap*."""
        super().__init__(message, place=place, hint=hint)
        self.gap = gap


def gap_before(  # noqa: PLR0913 (a place, and the evidence)
    node: str,
    marker: Marker,
    *,
    present: Sequence[int],
    expected: Collection[int],
    was_away: bool,
    unwatched: Collection[int] = (),
) -> StoredGap | None:
    """Return the gap in a log between *marker* and the next segment to read.

    *present* are the ids that can be read, ascending; *expected* those that were listed and not
    read. *was_away* means that the log was not listed since *marker* was reached. Retention did not
    list the log before the *unwatched* ones.
    """
    later = next((n for n in present if n > marker.segment_id), None)
    lost = [n for n in expected if n > marker.segment_id and (later is None or n < later)]
    if marker != START and marker.offset != END_OFFSET and marker.segment_id not in present:
        return _gap(node, marker, MARKER, later, max([marker.segment_id, *lost]))
    if lost:
        return _gap(node, marker, VANISHED, later, max(lost))
    unseen = was_away and not any(n <= marker.segment_id for n in present)
    unseen = unseen or (marker.offset == END_OFFSET and later in unwatched)
    if unseen and later is not None and later > marker.segment_id + 1 and marker != START:
        return _gap(node, marker, POSSIBLE, later, later)
    return None


def _gap(node: str, marker: Marker, kind: str, later: int | None, last: int) -> StoredGap:
    end = Marker(last, END_OFFSET) if later is None else Marker(later, 0)
    return StoredGap(node, marker, end, kind)


def error_of(gap: StoredGap) -> LogGapError:
    """Return the error that stops a split before *gap*."""
    at = file_of(gap.begin.segment_id) + (gap.kind not in _THERE)
    of = f", {gap.size_bytes} bytes from {gap.begin.offset} on" if gap.size_bytes else ""
    return LogGapError(
        _WORDS[gap.kind].format(at),
        place=f"node {gap.node}: segment {at}{of}",
        gap=gap,
        hint="put it back if you can; `headrace gaps` shows what is lost, `headrace accept` "
        "lets the job continue without it",
    )


def notice_of(gap: StoredGap, split: str, tables: Sequence[str]) -> Notice:
    """Return the notice for consumers about *gap*, which *split* met."""
    return Notice(
        kind="gap",
        key={"control": "gap", "split": split, "node": gap.node},
        document={
            "control": "gap",
            "name": gap.name,
            "split": split,
            "node": gap.node,
            "from": gap.begin.shown(),
            "to": gap.end.shown(),
            "kind": gap.kind,
            "bytes": gap.size_bytes,
            "state": gap.state,
            "policy": gap.policy,
            "noticed_ms": gap.noticed_ms,
            "tables": list(tables),
        },
    )


class GapBook:
    """The gaps of one split, and the state of each.

    `counted` is the number of gaps met, per node; `stopped_by` is the error that stops the
    split.
    """

    def __init__(self, policy: str, gaps: Sequence[StoredGap], *, expiry_ms: int) -> None:
        """*policy* is the option; *gaps* are the gaps in the state.

        Copies of one mutation are read within *expiry_ms* of split time.
        """
        self._is_open = policy == FAIL  # Whether a new loss stays open.
        self._state, self._policy = (OPEN, "") if self._is_open else (PASSED, policy)
        self._expiry_ms = expiry_ms
        self.gaps = tuple(gaps)
        self.counted: dict[str, int] = {}
        self.stopped_by: LogGapError | None = None

    def judge(
        self,
        gap: StoredGap,
        untaken: Sequence[StoredGap],
        is_met: Callable[[frozenset[str]], bool],
        *,
        split_time_ms: int,
    ) -> str:
        """Return the state that damage gets: covered, passed, or open if it stops the split.

        *untaken* are gaps that are not in this book yet. *is_met* says whether some nodes could
        meet the level by themselves. A segment whose damage was accepted stops nothing again.
        """
        known = [each for each in self.gaps if is_beside(each, gap)]
        if any(each.state in (ACCEPTED, PASSED) and each.policy for each in known):
            return PASSED
        recent = (g for g in self.gaps if g.split_time_ms + self._expiry_ms > split_time_ms)
        holed = {each.node for each in (gap, *recent, *untaken) if each.state != MENDED}
        if not any(each.state == OPEN for each in known) and not is_met(frozenset(holed)):
            return COVERED
        return self._state

    def meet(
        self,
        found: Sequence[StoredGap],
        markers: Mapping[str, Marker],
        *,
        split_time_ms: int,
        wall_ms: int,
    ) -> Sequence[StoredGap]:
        """Record the gaps *found*. Return those with something new to report.

        *markers* are the split's markers.
        """
        again = {(gap.node, gap.begin): gap for gap in found if gap.state != COVERED}
        reported: list[StoredGap] = []
        for gap in self.gaps:
            if gap.state == ACCEPTED:
                reported.append(self._replace(gap, state=PASSED))
            elif gap.state == OPEN and (other := again.pop((gap.node, gap.begin), None)):
                reported += self._meet_again(gap, other)
            elif gap.state == OPEN and markers[gap.node] > gap.begin:
                reported.append(self._replace(gap, state=MENDED))
        covered = [gap for gap in found if gap.state == COVERED]
        for gap in (*covered, *again.values()):
            reported += self._add(
                msgspec.structs.replace(gap, split_time_ms=split_time_ms, noticed_ms=wall_ms)
            )
        if self._is_open:
            stopping = (gap for gap in found if gap.state not in (COVERED, PASSED))
            self.stopped_by = next(map(error_of, stopping), None)
        return reported

    def _meet_again(self, gap: StoredGap, other: StoredGap) -> Sequence[StoredGap]:
        """Record an open gap that was met again; another policy closes it."""
        made = self._replace(
            gap,
            state=self._state,
            policy=self._policy,
            end=other.end,
            arcs=other.arcs,
            size_bytes=other.size_bytes,
        )
        return () if self._is_open else [made]

    def _add(self, gap: StoredGap) -> Sequence[StoredGap]:
        """Record a gap. Return the gaps to report; covered damage is not reported."""
        policy = self._policy
        for known in self.gaps:
            if known.state != gap.state or not is_beside(known, gap):
                continue
            if gap.state == COVERED:  # One per segment.
                grown = joined(known, gap)
                self._put(known, msgspec.structs.replace(grown, split_time_ms=gap.split_time_ms))
                return ()
            policy = policy or known.policy
            if known.begin <= gap.begin and gap.end <= known.end:  # Accepted before it was read.
                return ()
            if known.begin <= gap.begin < known.end:
                size = gap.size_bytes - known.size_bytes
                gap = msgspec.structs.replace(gap, begin=known.end, size_bytes=size)
        state = gap.state or self._state
        made = msgspec.structs.replace(gap, state=state, policy=policy)
        kept = [*self.gaps, made]
        while len(kept) > KEPT_MAX:
            kept.remove(_least_needed(kept))
        self.gaps = tuple(kept)
        if state == COVERED:
            return ()
        self._count(made)
        return [made, *(self._uncover(made) if made.kind == DAMAGED else ())]

    def _uncover(self, loss: StoredGap) -> Sequence[StoredGap]:
        """Return the damage that was covered until *loss* was met; it is behind the split."""
        oldest_ms = loss.split_time_ms - self._expiry_ms
        found = [g for g in self.gaps if g.state == COVERED and g.split_time_ms > oldest_ms]
        made = [self._replace(gap, state=PASSED, policy=loss.policy) for gap in found]
        for gap in made:
            self._count(gap)
        return made

    def _count(self, gap: StoredGap) -> None:
        name = f"gaps.{gap.node}"
        self.counted[name] = self.counted.get(name, 0) + 1

    def _replace(self, gap: StoredGap, **changes: object) -> StoredGap:
        return self._put(gap, msgspec.structs.replace(gap, **changes))

    def _put(self, gap: StoredGap, made: StoredGap) -> StoredGap:
        self.gaps = tuple(made if each is gap else each for each in self.gaps)
        return made


def joined(gap: StoredGap, more: StoredGap) -> StoredGap:
    """Return damage extended by *more* of its segment, which may already be part of it."""
    if more.end <= gap.end:
        return gap
    size = gap.size_bytes + more.size_bytes
    return msgspec.structs.replace(gap, end=more.end, size_bytes=size)


def is_assumed(gap: StoredGap) -> bool:
    """Return whether its node counts as having the copies that the part could contain."""
    return gap.policy == ASSUME and gap.state in (PASSED, COVERED)


def is_beside(gap: StoredGap, other: StoredGap) -> bool:
    """Return whether both are damage of one segment."""
    places = {(g.kind, g.node, g.begin.segment_id) for g in (gap, other)}
    return len(places) == 1 and gap.kind == DAMAGED


def _least_needed(gaps: Sequence[StoredGap]) -> StoredGap:
    """Return the gap to drop: a closed one, if possible not the newest of its node."""
    closed = [gap for gap in gaps if gap.state not in (OPEN, ACCEPTED)]
    newest = {gap.node: gap for gap in gaps}
    older = (gap for gap in closed if newest[gap.node] is not gap)
    return next(older, closed[0] if closed else gaps[0])
