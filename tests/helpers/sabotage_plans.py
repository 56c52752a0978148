"""Ways to break the rules of merged splits, of levels and of streams; see `sabotage`."""

# ruff: noqa: SLF001 (what is broken is inside)

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.sources.cassandra import merging, stored_rows, topology
from headrace.sources.cassandra.memory import Memory
from headrace.sources.cassandra.state import CdcState, StoredTopology
from sabotage import Patch, Sabotage


def takes_the_furthest_markers(patch: Patch) -> None:
    """Let a merged split go on where the furthest of its parts was: what others lack is lost."""
    patch.setattr(
        merging,
        "_markers",
        lambda parts, hosts: (
            dict(
                zip(
                    hosts,
                    map(max, zip(*(markers for _, markers in parts), strict=True)),
                    strict=True,
                )
            ),
            (),
        ),
    )


def forgets_who_was_ahead(patch: Patch) -> None:
    """Let a merged split read again what some of its parts had read."""
    real = merging._markers
    patch.setattr(merging, "_markers", lambda parts, hosts: (real(parts, hosts)[0], ()))


def merges_without_shifting_times(patch: Patch) -> None:
    """Take the records of a part whose split time was behind as they are."""
    patch.setattr(
        merging,
        "rewritten",
        lambda row, terms: stored_rows.rewritten(row, terms._replace(shift_ms=0)),
    )


def merges_without_what_waits(patch: Patch) -> None:
    """Forget what is pending when splits are merged."""
    patch.setattr(
        merging,
        "chunks_of",
        lambda rows: stored_rows.chunks_of([r for r in rows if not stored_rows.is_pending(r)]),
    )


def goes_on_with_old_books(patch: Patch) -> None:
    """Let the books of a merged split begin with nothing, whatever waits."""
    patch.setattr(merging, "opened", lambda _counters: {})


def merges_the_newest_ring_alone(patch: Patch) -> None:
    """Of what was seen of the topology, let the most count."""

    def newest(states: Sequence[CdcState], _tau: int) -> tuple[StoredTopology, ...]:
        return tuple(each for each in states[-1].topologies if each.superseded is None)

    patch.setattr(merging, "all_topologies", newest)


def counts_other_centres(patch: Patch) -> None:
    """Let copies of any data centre count for a level of one."""
    patch.setattr(topology, "LOCAL_LEVELS", ())


def asks_one_centre_of_each(patch: Patch) -> None:
    """Let the quorum of one data centre be enough for EACH_QUORUM."""
    real = topology._terms

    def terms(
        version: topology.Topology,
        copies: Mapping[str, int],
        centres: Mapping[str, str],
        replicas: frozenset[str],
    ) -> Sequence[tuple[frozenset[str], int]]:
        return real(version, copies, centres, replicas)[:1]

    patch.setattr(topology, "_terms", terms)


def takes_one_copy_for_two(patch: Patch) -> None:
    """Ask for one copy at TWO."""
    patch.setitem(topology._COUNTS, "TWO", 1)


def suppresses_all_that_waits(patch: Patch) -> None:
    """Leave out what waited, whether or not it came from a stream."""
    real = Memory._publish

    def publish(self: Memory, slot: int, outbox: object) -> None:
        if self._suppress_streamed:
            self._agreement.leave_out(slot)
        else:
            real(self, slot, outbox)  # type: ignore[arg-type]  # As it came.

    patch.setattr(Memory, "_publish", publish)


# What must notice it: how the judge's words begin.
PLANS: Final[Mapping[Sabotage, str]] = {
    takes_the_furthest_markers: "line 33",
    forgets_who_was_ahead: "line 33",
    merges_without_shifting_times: "line 33",
    merges_without_what_waits: "line 33",
    goes_on_with_old_books: "line 33",
    merges_the_newest_ring_alone: "line 33",
}
LEVELS: Final[Mapping[Sabotage, tuple[str, str]]] = {
    counts_other_centres: ("LOCAL_QUORUM", "line 3:"),
    asks_one_centre_of_each: ("EACH_QUORUM", "line 3:"),
    takes_one_copy_for_two: ("TWO", "line 3:"),
}
STREAMS: Final[Mapping[Sabotage, str]] = {suppresses_all_that_waits: "line 19"}
