"""Gaps: parts of a log that were lost before they were read (I10). Pure.

Missing ids alone prove nothing: Cassandra also deletes segments without CDC data. A segment that
was listed before, or that was being read, is proof. If the log was not listed for a while, one
that was already read and still exists shows that nothing after it was removed, because Cassandra
removes the oldest first; without one, missing ids may be a gap.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from headrace.plugins import FatalError, Notice
from headrace.sources.cassandra.commitlog.manifest import file_of
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.state.cdc_state import ACCEPTED, OPEN, Marker, StoredGap

MARKER: Final = "marker"
VANISHED: Final = "vanished"
POSSIBLE: Final = "possible"
RETURNED: Final = "returned"

PASSED: Final = "passed"
MENDED: Final = "mended"

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
}


class LogGapError(FatalError):
    """Part of a log was deleted before it was read (I10): `gap` says which."""

    code = "log_gap"

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
    read. *was_away* says that the log was not listed since *marker* was reached. Retention did not
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
    at = file_of(gap.begin.segment_id) + (gap.kind not in (MARKER, RETURNED))
    return LogGapError(
        _WORDS[gap.kind].format(at),
        place=f"node {gap.node}: segment {at}",
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

    def __init__(self, policy: str, gaps: Sequence[StoredGap]) -> None:
        """*policy* is the option; *gaps* are the gaps in the state."""
        self._policy = policy
        self.gaps = tuple(gaps)
        self.counted: dict[str, int] = {}
        self.stopped_by: LogGapError | None = None

    def meet(
        self,
        found: Sequence[StoredGap],
        markers: Mapping[str, Marker],
        *,
        split_time_ms: int,
        wall_ms: int,
    ) -> Sequence[StoredGap]:
        """Take the gaps *found*, and return those with something new to report.

        *markers* are the split's markers.
        """
        again = {(gap.node, gap.begin): gap for gap in found}
        told = []
        for gap in self.gaps:
            if gap.state == ACCEPTED:
                told.append(self._replace(gap, state=PASSED))
            elif gap.state == OPEN and (other := again.pop((gap.node, gap.begin), None)):
                self._replace(gap, end=other.end, arcs=other.arcs)
            elif gap.state == OPEN and markers[gap.node] > gap.begin:
                told.append(self._replace(gap, state=MENDED))
        told += [self._add(gap, split_time_ms, wall_ms) for gap in again.values()]
        if found and self._policy == FAIL:
            self.stopped_by = error_of(found[0])
        return told

    def _add(self, gap: StoredGap, split_time_ms: int, wall_ms: int) -> StoredGap:
        state = OPEN if self._policy == FAIL else PASSED
        policy = "" if self._policy == FAIL else self._policy
        made = msgspec.structs.replace(
            gap, state=state, policy=policy, split_time_ms=split_time_ms, noticed_ms=wall_ms
        )
        kept = [*self.gaps, made]
        while len(kept) > KEPT_MAX:
            kept.remove(next((g for g in kept if g.state in (PASSED, MENDED)), kept[0]))
        self.gaps = tuple(kept)
        name = f"gaps.{gap.node}"
        self.counted[name] = self.counted.get(name, 0) + 1
        return made

    def _replace(self, gap: StoredGap, *, state: str = OPEN, **more: object) -> StoredGap:
        made = msgspec.structs.replace(gap, state=state, **more)
        self.gaps = tuple(made if each is gap else each for each in self.gaps)
        return made
