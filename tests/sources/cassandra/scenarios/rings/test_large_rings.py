"""Rings with more nodes than a record has log slots: each split reads the few logs of its nodes."""

from collections import Counter
from pathlib import Path

import pytest
from cassandra.murmur3 import murmur3

from headrace.sources.cassandra.errors import SplitTooWideError
from headrace.sources.cassandra.ring.log_slots import LOG_SLOTS_MAX, LOG_SLOTS_WANTED
from headrace.sources.cassandra.ring.splits import names
from helpers.logs.large_ring import COPIES, LargeRing, keys, tokens_of
from helpers.logs.node_logs import source

pytestmark = pytest.mark.long

SPLITS = 32
HINTS_S = 20
MEMORY_S = 30


def read_entries(job: LargeRing) -> int:
    """Return the number of entries that were read, over all logs and splits."""
    books = job.books().items()
    return sum(n for name, n in books if name.startswith("entries.") and name.endswith(".read"))


@pytest.mark.parametrize(("level", "copies"), [("QUORUM", 2), ("ALL", 3)])
def test_each_mutation_is_agreed_once(tmp_path: Path, level: str, copies: int) -> None:
    """With as many copies as the level needs each mutation is published; with one less none is."""
    job = LargeRing(tmp_path, tokens_of(100), consistency=level, splits=SPLITS)
    wanted = keys("k", 150)
    job.log(wanted, slice(copies - 1))
    job.read()
    assert not job.came

    job.crash()  # What waits is known by its log slots.
    job.log(wanted, slice(copies - 1, None))
    job.read()

    assert Counter(wanted) == job.came
    assert COPIES * len(wanted) == read_entries(job)
    assert max(len(state.hosts) for state in job.states.values()) <= LOG_SLOTS_WANTED


def test_who_owns_a_few_splits_reads_a_few_logs(tmp_path: Path) -> None:
    """No log without data of the split is opened, and no pin is written there."""
    job = LargeRing(tmp_path, tokens_of(300), only=slice(4), consistency="ALL")
    wanted = keys("k", 1_500)
    job.log(wanted)
    job.read()

    parts = job.source._parts  # noqa: SLF001 (what is open)
    here = {node for state in job.states.values() for node in state.hosts}
    assert here == {cursor.node for cursor in parts.built().pump.cursors}
    assert here == {path.parent.parent.name for path in tmp_path.glob("*/.headrace/*-of-*")}
    assert COPIES <= len(here) <= 4 * COPIES
    theirs = (1 << 64) * 4 // len(job.source.plan()) - (1 << 63)
    assert Counter(key for key in wanted if murmur3(key) < theirs) == job.came


def test_owners_of_a_large_ring_publish_all_of_it(tmp_path: Path) -> None:
    """Each mutation is published once, by the owner of its split, also after splits moved."""
    job = LargeRing(tmp_path, tokens_of(300), only=slice(0), consistency="ALL", splits=SPLITS)
    wanted: list[bytes] = []
    for share in (SPLITS // 2, SPLITS * 3 // 4):
        more = keys(f"of {share}", 300)
        job.log(more)
        wanted += more
        for first in range(0, SPLITS, share):
            job.crash(slice(first, first + share))
            job.read()
        assert Counter(wanted) == job.came
    assert COPIES * len(wanted) == read_entries(job)
    assert max(len(state.hosts) for state in job.states.values()) <= LOG_SLOTS_WANTED


def test_other_splits_continue_with_other_log_slots(tmp_path: Path) -> None:
    """After more or fewer splits pending mutations stay pending, and published ones published."""
    job = LargeRing(tmp_path, tokens_of(100), consistency="QUORUM", splits=SPLITS)
    wanted, early = keys("k", 150), keys("early", 50)
    job.log(wanted, slice(1))
    job.log(early, slice(2))
    job.read()
    assert Counter(early) == job.came

    for count, copy in ((64, 1), (16, 2)):
        job.replan(count)
        job.log([*wanted, *early] if copy > 1 else wanted, slice(copy, copy + 1))
        job.read()
        assert Counter([*early, *wanted]) == job.came


def test_nodes_join_and_leave(tmp_path: Path) -> None:
    """A joining node gets a log slot in its splits; a leaving node's log slot becomes free."""
    before = tokens_of(100)
    fresh = {"new": tokens_of(1, seed=7)["n000"]}
    job = LargeRing(
        tmp_path,
        before,
        more=fresh,
        consistency="ALL",
        splits=SPLITS,
        max_hint_window_seconds=HINTS_S,
        expiry_seconds=MEMORY_S,
        dedup_window_seconds=MEMORY_S,
    )
    first = keys("first", 100)
    job.log(first)
    job.read()
    assert not any("new" in state.hosts for state in job.states.values())

    job.ring({**before, **fresh})
    job.wait(20)
    then = keys("then", 300)
    job.log(then)
    job.wait(20)
    assert Counter([*first, *then]) == job.came
    held = {name for name, state in job.states.items() if "new" in state.hosts}
    assert 0 < len(held) < len(job.states) // 2

    job.ring(before)  # The node leaves again.
    job.wait(20)
    job.crash()
    last = keys("last", 300)
    job.log(last)
    job.wait(HINTS_S + MEMORY_S + 80)
    assert Counter([*first, *then, *last]) == job.came
    assert not any("new" in state.hosts for state in job.states.values())
    assert not list((tmp_path / "new" / ".headrace").glob("*-of-*"))
    assert COPIES * len(job.came) == read_entries(job)


def test_splits_that_are_too_wide_are_refused(tmp_path: Path) -> None:
    """A number of splits that is too small is refused; a number that is chosen is large enough."""
    job = LargeRing(tmp_path, tokens_of(100), only=slice(0))
    with pytest.raises(SplitTooWideError, match=f"nodes, at most {LOG_SLOTS_MAX}") as raised:
        source(job.options | {"splits": 2}).plan()

    assert raised.value.hint is not None
    fit = int(raised.value.hint.partition(" ")[0])
    assert fit == len(source(job.options | {"splits": fit}).plan())
    assert names(256) == source(job.options).sized(40)
