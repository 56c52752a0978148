"""`gaps: assume` (line 21): for which tokens, and how long, a lost part of a log counts as read."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from cassandra.murmur3 import murmur3

from headrace.plugins import Reader
from headrace.plugins.positions import PASSED
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.reader import CassandraReader
from headrace.sources.cassandra.ring.splits import RING, Arc, place_of
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker, StoredGap
from headrace.sources.cassandra.state.gaps import ASSUME, VANISHED
from helpers.logs.forged import insert
from helpers.logs.node_logs import batches, forged_nodes, open_all, source

W_S = 60
KEYS = [b"k%d" % n for n in range(12)]
LOW = [key for key in KEYS if place_of(int(murmur3(key))) < RING // 2]
ASSUMED = [[b"t1"], []]  # What was logged before W ended is published, what was logged later waits.


def job(folder: Path, splits: int) -> dict[str, object]:
    """Return the options of a job at ALL; node 1 has no copy of the first keys."""
    rows = [insert(key, b"v") for key in KEYS]
    return forged_nodes(folder, {"n1": [], "n2": rows, "n3": rows}) | {
        "consistency": "ALL",
        "splits": splits,
        "expiry_seconds": W_S,
        "dedup_window_seconds": W_S,
        "gaps": "assume",
    }


def lost(split_time_ms: int) -> StoredGap:
    """Return a gap in the log of node 1, skipped by the policy."""
    begin, end = Marker(1, END_OFFSET), Marker(SEGMENT_ID, 0)
    return StoredGap("n1", begin, end, VANISHED, PASSED, ASSUME, split_time_ms)


def keys_of(readers: Mapping[str, Reader]) -> list[bytes]:
    """Return the keys that are published."""
    documents = [r.document() for b in batches(readers.values()) for r in b.records()]
    return sorted(bytes.fromhex(each["key"]["k"][2:]) for each in documents)


def states_of(options: Mapping[str, object]) -> dict[str, CdcState]:
    """Return the state of each split when all is read."""
    made = source(options)
    found: dict[str, CdcState] = {}
    for batch in batches(open_all(made).values()):
        assert isinstance(batch.end, CdcState)
        found[batch.split] = batch.end
    made.close()
    return found


def test_copies_are_assumed_by_token_also_after_a_merge(tmp_path: Path) -> None:
    """A copy is assumed only for tokens whose part of the log was lost, also after a merge."""
    low, high = states_of(job(tmp_path, 2)).values()
    merged = source(job(tmp_path, 1))
    resplit = merged.resplit(
        {"1-of-2": replace(low, met_gaps=(lost(low.split_time_ms),)), "2-of-2": high}
    )
    assert resplit is not None
    state = resplit["1-of-1"]
    assert isinstance(state, CdcState)
    assert [(Arc(0, RING // 2),)] == [gap.arcs for gap in state.met_gaps]

    assert sorted(LOW) == keys_of(open_all(merged, {"1-of-1": state}))
    merged.close()
    assert 0 < len(LOW) < len(KEYS)


def logged_around_w(folder: Path) -> list[list[bytes]]:
    """Return what is published of a mutation logged before W ended, and of one logged later."""
    options = job(folder, 1)
    (state,) = states_of(options).values()
    clock = DrivenClock()
    made = source(options, clock)
    readers = open_all(made, {"1-of-1": replace(state, met_gaps=(lost(state.split_time_ms),))})
    assert sorted(KEYS) == keys_of(readers)
    came = []
    for turn, seconds in enumerate((W_S - 10, 10), start=1):
        for _ in range(seconds // 5):
            clock.advance(5_000)
            assert [] == keys_of(readers)
        content = segment([[insert(b"t%d" % turn, b"v")]], segment_id=SEGMENT_ID + turn).content
        for node in ("n2", "n3"):
            write_segment(folder / node, content, segment_id=SEGMENT_ID + turn)
        came.append(keys_of(readers))
    made.close()
    return came


def test_what_is_assumed_ends(tmp_path: Path) -> None:
    """A node that lost a part of its log yesterday is not assumed to have logged today's writes."""
    assert ASSUMED == logged_around_w(tmp_path)


def assumes_for_ever(self: CassandraReader) -> None:
    """Break the rule: a lost part counts for all later mutations."""
    gaps = [gap for gap in self._gaps.gaps if gap.policy == ASSUME]
    parts = [(0, 1 << 62, 0, RING) for _ in gaps]
    self._agreement.assume(parts)
    self._memory.check_again()


def assumes_nothing(self: CassandraReader) -> None:
    """Break the rule: a lost part counts for nothing."""
    self._memory.check_again()


@pytest.mark.parametrize("sabotage", [assumes_for_ever, assumes_nothing])
def test_who_assumes_otherwise_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sabotage: Callable[[CassandraReader], None]
) -> None:
    """The check above fails if the lost part counts for ever, and if it never counts."""
    monkeypatch.setattr(CassandraReader, "_assume", sabotage)

    with pytest.raises(AssertionError):
        assert ASSUMED == logged_around_w(tmp_path)
