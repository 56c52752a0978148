"""Line 36: each repeat that the source may cause is counted by its cause, and no other is."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from headrace.connector.runtime.books.equations import SplitBooks, repeats
from headrace.sources.cassandra.forge.segments import SEGMENT_ID
from headrace.sources.cassandra.logs.repair_streams import Stream
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from helpers.logs.forged import NOW_US, insert, mutation, update
from helpers.logs.log_job import EXPIRY_S, REST_S, Job, report, shown

ONCE = shown(b"k")


def late(folder: Path) -> Job:
    """Let a copy arrive after its record, which was incomplete, expired."""
    job = Job(folder, consistency="ONE")
    job.log("a", insert(b"k"))
    assert ONCE == job.read()
    job.wait(2 * EXPIRY_S)
    job.log("b", insert(b"k"))
    assert ONCE == job.read()
    return job


def shortened(folder: Path) -> Job:
    """Let a copy arrive after its record was dropped to make room for others."""
    job = Job(folder, consistency="ONE", splits=1, records_max=1_000)
    job.log("a", insert(b"k"), *(insert(b"%d" % n) for n in range(9_000)))
    assert 9_001 == len(job.read())
    job.log("b", insert(b"k"))
    assert ONCE == job.read()
    return job


def overflow(folder: Path) -> Job:
    """Let a pending mutation be dropped for room, be sent by hand, and then get its copies."""
    job = Job(folder, splits=1, records_max=1_000)
    job.log("a", insert(b"k"), *(insert(b"%d" % n) for n in range(9_000)))
    assert [] == job.read()
    redriven = job.source.recover(job.aside[0])
    assert redriven is not None
    assert ONCE == [record.document()["key"]["k"] for record in redriven.records()]
    for node in "bc":
        job.log(node, insert(b"k"))
    assert ONCE == job.read()
    return job


def expired(folder: Path) -> Job:
    """Let a record expire as incomplete, and a copy that arrives later be published alone."""
    job = Job(folder, expired="publish", complete_seconds=REST_S)
    for node in "abc":
        job.log(node, insert(b"k"))
    assert ONCE == job.read()
    job.wait(2 * REST_S)
    job.log("a", insert(b"k"))
    assert ONCE == job.wait(EXPIRY_S + REST_S)
    return job


def reencoded(folder: Path) -> Job:
    """Let a stream bring, in other bytes, what is older than the dedup window."""
    job = Job(folder, consistency="ONE", streamed="publish", complete_seconds=REST_S)
    for node in "abc":
        job.log(node, insert(b"k"))
    assert ONCE == job.read()
    job.wait(2 * REST_S)
    report(folder / "a", Stream("forged", SEGMENT_ID + 1, NOW_US + 1))
    job.log("a", mutation(update(b"k"), update(b"k")))
    assert {*ONCE} == {*job.wait(EXPIRY_S // 2 + REST_S)}
    return job


@pytest.mark.parametrize("cause", [late, shortened, overflow, expired, reencoded])
def test_each_cause_has_its_counter(tmp_path: Path, cause: Callable[[Path], Job]) -> None:
    """The row is published twice, and one counter has the cause."""
    counted = causes_in(cause(tmp_path))

    assert [cause.__name__] == list(counted)


def test_what_comes_once_is_not_counted(tmp_path: Path) -> None:
    """Copies, hints and other bytes of remembered mutations are not repeats."""
    job = Job(tmp_path)
    for node in "abc":
        job.log(node, insert(b"k"))
    job.log("a", insert(b"k"), mutation(update(b"k"), update(b"k")))
    assert ONCE == job.read()
    job.wait(EXPIRY_S // 2)

    assert {} == causes_in(job)


def causes_in(job: Job) -> Mapping[str, int]:
    """Return the counters of repeats, by cause."""
    found = repeats(SplitBooks("", job.books(), {}, BOOKKEEPING))
    return {cause: count for cause, count in found.items() if count}
