"""The ring: every token is in one arc, and what no split has is seen."""

from itertools import pairwise

import pytest

from headrace.connector.control.console.ring import ARCS_MAX, LOWEST, TOKENS, ring_of
from headrace.connector.control.status import SplitStatus
from headrace.connector.foundation.states import Observed
from headrace.sources.cassandra.ring.splits import names
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.files import FileSource


def statuses(count: int, without: tuple[int, ...] = ()) -> list[SplitStatus]:
    """Return so many splits, which run, but those *without*, which are missing."""
    return [
        SplitStatus(task=n, split=split, state=Observed.RUNNING, worker=f"host:{n % 5}")
        for n, split in enumerate(names(count))
        if n not in without
    ]


@pytest.mark.parametrize("count", [1, 3, 64, 65, 500])
def test_a_whole_ring(count: int) -> None:
    """Arcs meet, are all of the ring, and are few."""
    ring = ring_of(statuses(count), CassandraSource)

    assert ring is not None
    arcs = ring["arcs"]
    assert (LOWEST, LOWEST + TOKENS) == (arcs[0]["from"], arcs[-1]["to"])
    assert all(one["to"] == other["from"] for one, other in pairwise(arcs))
    assert count == sum(arc["splits"] for arc in arcs)
    assert len(arcs) == min(count, -(-count // -(-count // ARCS_MAX)))
    assert 1.0 == pytest.approx(ring["read_share"])
    assert {"RUNNING"} == {arc["state"] for arc in arcs}


@pytest.mark.parametrize("without", [(0,), (7,), (2, 3), (4, 6)])
def test_a_hole(without: tuple[int, ...]) -> None:
    """Tokens of no split are arcs of their own."""
    ring = ring_of(statuses(8, without), CassandraSource)

    assert ring is not None
    holes = [arc for arc in ring["arcs"] if arc["state"] == "NOT COVERED"]
    assert len(without) * TOKENS // 8 == sum(arc["to"] - arc["from"] for arc in holes)
    assert (8 - len(without)) / 8 == ring["read_share"]


def test_an_arc_of_many_splits_has_the_worst_state() -> None:
    """One split that failed among many is seen."""
    splits = statuses(500)
    splits[77] = SplitStatus(task=77, split=splits[77].split, state=Observed.FAILED)
    ring = ring_of(splits, CassandraSource)

    assert ring is not None
    assert 1 == sum(arc["state"] == "FAILED" for arc in ring["arcs"])


def test_other_sources_have_no_ring() -> None:
    """A source whose splits are not ranges of tokens has none, nor one without splits."""
    assert ring_of(statuses(3), FileSource) is None
    assert ring_of([], CassandraSource) is None
