"""Changes that break the rules of plans, of levels and of streams."""

# ruff: noqa: SLF001 (what is broken is inside)

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace.connector.stores import Commit
from headrace.connector.stores.keyed.heads import Heads
from headrace.connector.stores.keyed.rows import Head
from headrace.plugins import HeadraceError
from headrace.sources.cassandra import resources
from headrace.sources.cassandra.logs import repair_streams
from headrace.sources.cassandra.reading import record_expiry, split_feed, topology_versions
from headrace.sources.cassandra.reading.record_expiry import Memory
from headrace.sources.cassandra.ring import log_slots, topology
from headrace.sources.cassandra.ring.replica_groups import Groups
from headrace.sources.cassandra.state import resharding, rows
from headrace.sources.cassandra.state.cdc_state import CdcState, StoredTopology
from helpers.model import ring
from helpers.sabotage.rules import Patch, Sabotage


def takes_the_furthest_markers(patch: Patch) -> None:
    """Let a merged split continue at the largest marker of its parts: the others lose data."""
    patch.setattr(
        resharding,
        "_markers",
        lambda resources, hosts: (
            dict(
                zip(
                    hosts,
                    map(max, zip(*(markers for _, markers in resources), strict=True)),
                    strict=True,
                )
            ),
            (),
        ),
    )


def forgets_who_was_ahead(patch: Patch) -> None:
    """Let a merged split read again what some of its parts had read."""
    real = resharding._markers
    patch.setattr(resharding, "_markers", lambda resources, hosts: (real(resources, hosts)[0], ()))


def merges_without_shifting_times(patch: Patch) -> None:
    """Do not shift the times of records of a part whose split time is behind."""
    patch.setattr(
        resharding,
        "rewritten",
        lambda row, terms: rows.rewritten(row, terms._replace(shift_ms=0)),
    )


def merges_without_what_waits(patch: Patch) -> None:
    """Drop pending records when splits are merged."""
    patch.setattr(
        resharding,
        "chunks_of",
        lambda kept: rows.chunks_of([row for row in kept if not rows.is_pending(row)]),
    )


def goes_on_with_old_books(patch: Patch) -> None:
    """Start the books of a merged split without the pending records."""
    patch.setattr(resharding, "opened", lambda _counters: {})


def merges_the_newest_ring_alone(patch: Patch) -> None:
    """Take the latest time of what was seen of the topology."""

    def newest(states: Sequence[CdcState], _split_time_ms: int) -> tuple[StoredTopology, ...]:
        return tuple(each for each in states[-1].topologies if each.superseded is None)

    patch.setattr(resharding, "all_topologies", newest)


def counts_other_centres(patch: Patch) -> None:
    """Count copies of any data centre at a local level."""
    patch.setattr(topology, "LOCAL_LEVELS", ())


def asks_one_centre_of_each(patch: Patch) -> None:
    """Accept the quorum of one data centre at EACH_QUORUM."""
    real = topology._terms

    def terms(
        version: topology.Topology,
        copies: Mapping[str, int],
        centres: Mapping[str, str],
        topology_versions: frozenset[str],
    ) -> Sequence[tuple[frozenset[str], int]]:
        return real(version, copies, centres, topology_versions)[:1]

    patch.setattr(topology, "_terms", terms)
    patch.setattr(resources, "coverage", lambda *_: None)  # It would detect that at the start.


def takes_one_copy_for_two(patch: Patch) -> None:
    """Accept one copy at TWO."""
    patch.setitem(topology._COUNTS, "TWO", 1)


def suppresses_all_that_waits(patch: Patch) -> None:
    """Drop all that waited, whether or not it came from a stream."""
    real = Memory._publish

    def publish(self: Memory, slot: int, agreed: object) -> None:
        if self._suppress_streamed:
            self._agreement.leave_out(slot)
        else:
            real(self, slot, agreed)  # type: ignore[arg-type]  # As it came.

    patch.setattr(Memory, "_publish", publish)


# ---- levels, copies and rings ----


def alters_nothing(patch: Patch) -> None:
    """Keep the level with which the job started."""
    real = ring.Ring.options

    def options(self: ring.Ring, turn: int) -> dict[str, object]:
        return real(self, turn) | {"consistency": self.first.level}

    patch.setattr(ring.Ring, "options", options)


def judges_what_was_by_what_is(patch: Patch) -> None:
    """Require as many copies of what was written before an ALTER as after it."""
    real = topology_versions.Replicas.groups

    def groups(
        self: topology_versions.Replicas,
        split: int,
        superseded: Collection[topology.Topology],
        slots: log_slots.LogSlots,
    ) -> Groups:
        now = self.current
        same = [replace(v, level=now.level, keyspaces=now.keyspaces) for v in superseded]
        return real(self, split, same, slots)

    patch.setattr(topology_versions.Replicas, "groups", groups)


# ---- streams ----


def compares_streams_at_once(patch: Patch) -> None:
    """Compare what may be a stream's at once, also before all is read (line 17)."""
    patch.setattr(record_expiry, "CANONICAL_MS", 0)


def knows_of_no_streams(patch: Patch) -> None:
    """Treat what a stream brings as a write."""
    patch.setattr(repair_streams.Streams, "written_before", lambda *_: repair_streams.NEVER)


# ---- plans ----


def takes_commits_of_ended_plans(patch: Patch) -> None:
    """Accept a commit of a process that owned a split of an ended plan."""
    real = Heads._mismatch

    def judge(self: Heads, commit: Commit, head: Head | None) -> HeadraceError | None:
        error = real(self, commit, head)
        return error if head is None or head.plan == commit.plan else None

    patch.setattr(Heads, "_mismatch", judge)


def takes_what_one_part_read_for_all(patch: Patch) -> None:
    """Let the marker of one part of a merged split count for its other tokens too."""
    patch.setattr(split_feed.FurtherRead, "has_seen", _has_seen)


def _has_seen(self: split_feed.FurtherRead, host: int, _token: int, segment: int, at: int) -> int:
    return int(any((segment, at) <= markers[host] for _, markers in self._parts))


# How the message starts of the check that must find it.
PLANS: Final[Mapping[Sabotage, str]] = {
    takes_the_furthest_markers: "line 33",
    forgets_who_was_ahead: "line 33",
    merges_without_shifting_times: "line 33",
    merges_without_what_waits: "line 33",
    goes_on_with_old_books: "line 33",
    merges_the_newest_ring_alone: "line 33",
    takes_what_one_part_read_for_all: "I1",
    takes_commits_of_ended_plans: "line 27",
}
LEVELS: Final[Mapping[Sabotage, tuple[str, str]]] = {
    counts_other_centres: ("LOCAL_QUORUM", "line 3:"),
    asks_one_centre_of_each: ("EACH_QUORUM", "line 3:"),
    takes_one_copy_for_two: ("TWO", "line 3:"),
}
STREAMS: Final[Mapping[Sabotage, str]] = {
    suppresses_all_that_waits: "line 19",
    compares_streams_at_once: "line 17",
    knows_of_no_streams: "line 17",
}
# Those that are found where the level, or the number of copies, changes.
ALTERED: Final[Mapping[Sabotage, str]] = {
    alters_nothing: "line 2:",
    judges_what_was_by_what_is: "line 17",
}
