"""What replicas do to one another's copies: scenarios P01 to P08, K07 and K08.

The source's readers read logs that are forged or recorded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.logs.pins import FOLDER
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.logs.forged import SCHEMA, TABLE, insert
from helpers.logs.log_job import EXPIRY_S, NODES, Job, shown
from helpers.logs.node_logs import batches, open_all, source
from helpers.recordings.corpora import recording

CENTRES: Final = {"a": "x", "b": "x", "c": "x", "d": "y", "e": "y", "f": "y"}
_PARSED: Final = parse_schema(SCHEMA)


def pair(folder: Path) -> Job:
    """Return a job over two nodes, both of which must agree."""
    schema = SCHEMA.replace("'3'", "'2'")
    return Job(folder, NODES[:2], schema, consistency="ALL")


def test_p01_the_same_bytes_from_two_nodes_are_one_event(tmp_path: Path) -> None:
    """P01: with replication factor 2 both nodes log the same bytes, and one change is published."""
    job = pair(tmp_path)
    for node in NODES[:2]:
        job.log(node, insert(b"k"))

    assert shown(b"k") == job.read()
    assert [2] == [event["copies"] for event in job.events]


def test_p02_below_the_level_it_is_held_until_a_late_copy_comes(tmp_path: Path) -> None:
    """P02: one copy of two waits, for hours if necessary; with the second it is published."""
    job = Job(tmp_path)
    job.log("a", insert(b"k"))
    assert [] == job.read()
    assert [] == job.wait(EXPIRY_S + 20)
    assert 1 == job.books()["mutations.expired"]

    job.log("c", insert(b"k"))

    assert shown(b"k") == job.read()
    assert (0, 1) == (job.books()["mutations.expired"], job.books()["mutations.agreed"])


def test_p03_what_never_gets_enough_copies_is_dropped_and_counted(tmp_path: Path) -> None:
    """P03: after its time it is counted as expired, and is not published."""
    job = Job(tmp_path)
    job.log("a", insert(b"alone"), insert(b"both"))
    job.log("b", insert(b"both"))

    assert shown(b"both") == [*job.read(), *job.wait(2 * EXPIRY_S)]

    books = job.books()
    fates = ("agreed", "expired", "pending")
    assert [1, 1, 0] == [books[f"mutations.{fate}"] for fate in fates]


def test_p04_hints_in_another_order_give_the_same_row(tmp_path: Path) -> None:
    """P04: a node gets hints in reverse order; folding by write time gives the same row."""
    job = Job(tmp_path, consistency="ALL")
    first, second = insert(b"k", b"\1", at_us=1), insert(b"k", b"\2", at_us=2)
    job.log("a", first, second)
    job.log("b", first, second)
    job.log("c", second, first)

    job.read()

    times = [int(str(event["timestamp"])) for event in job.events]
    newest = job.events[times.index(max(times))]
    assert 2 == len(set(times))
    assert "0x02" == newest["columns"]["v"]["value"]  # type: ignore[index]  # A document's.


LEVELS: Final = {
    "ONE": ("", {"a"}, {"d"}),
    "LOCAL_ONE": ("def", {"a"}, {"d", "a"}),
    "LOCAL_QUORUM": ("adef", {"a", "b"}, {"d", "e", "f", "c", "a"}),
    "QUORUM": ("abc", {"a", "b", "c", "d"}, {"d", "e", "f", "a"}),
    "EACH_QUORUM": ("abcd", {"a", "b", "d", "e"}, {"c", "b", "f", "d"}),
    "ALL": ("abcde", set("abcdef"), set("fedcba")),
}


@pytest.mark.parametrize("level", LEVELS)
def test_p05_a_level_is_honoured_exactly(tmp_path: Path, level: str) -> None:
    """P05: with three copies in each of two data centres, each level needs its exact number."""
    too_few, enough, others = LEVELS[level]
    schema = SCHEMA.replace(
        "'SimpleStrategy', 'replication_factor': '3'",
        "'NetworkTopologyStrategy', 'x': '3', 'y': '3'",
    )
    ring = {
        node: {"tokens": [1000 * number], "dc": dc}
        for number, (node, dc) in enumerate(CENTRES.items())
    }
    local = {"datacenter": "x"} if level.startswith("LOCAL") else {}
    job = Job(tmp_path, CENTRES, schema, ring, consistency=level, **local)
    for key, logged in ((b"few", too_few), (b"enough", enough), (b"others", others)):
        for node in logged:
            job.log(node, insert(key))

    assert sorted(shown(b"enough", b"others")) == sorted(job.read())


def test_p06_a_single_node_needs_no_other(tmp_path: Path) -> None:
    """P06: with one replica each change is published once, also when it is logged twice."""
    job = Job(tmp_path, "a", SCHEMA.replace("'3'", "'1'"), consistency="ONE")
    job.log("a", insert(b"1"), insert(b"2"), insert(b"1"))

    assert shown(b"1", b"2") == sorted(job.read())


def said_otherwise(*keys_and_times: tuple[bytes, int]) -> bytes:
    """Return inserts as a repair writes them: in other bytes."""
    whole = insert(*keys_and_times[0][:1], at_us=keys_and_times[0][1])
    key, at_us = keys_and_times[0]
    ts = 1_700_000_000_000_000 + at_us
    row = {"clustering": [], "liveness": {"ts": ts}, "columns": {"v": {"ts": ts, "value": ""}}}
    update = {"id": str(TABLE), "key": key.hex(), "items": [row]}
    made = encode_mutation({"updates": [update, {**update, "items": []}]}, _PARSED, 12)
    assert made != whole
    return made


@pytest.mark.parametrize("level", ["ONE", "QUORUM"])
def test_p07_repairs_hints_and_batches_add_no_event(tmp_path: Path, level: str) -> None:
    """P07: other bytes of a repair, and the same bytes of a hint and a batch, publish nothing."""
    job = Job(tmp_path, consistency=level)
    for node in NODES[:2]:
        job.log(node, insert(b"k"))
    assert shown(b"k") == job.read()

    job.log("c", insert(b"k"))  # A hint.
    job.log("a", insert(b"k"))  # A batch that is replayed.
    for node in NODES:
        job.log(node, said_otherwise((b"k", 0)))

    assert [] == [*job.read(), *job.wait(EXPIRY_S // 2)]
    assert 1 == job.books()["mutations.reencoded"]


@pytest.mark.parametrize("versions", [(7, 8, 9), (7, 7, 8), (8, 9, 9)])
def test_p08_replicas_of_mixed_versions_agree(tmp_path: Path, versions: Sequence[int]) -> None:
    """P08: in a rolling upgrade no two nodes log the same bytes, and all copies agree."""
    job = Job(tmp_path, consistency="ALL")
    for node, version in zip(NODES, versions, strict=True):
        job.log(node, insert(b"k", b"v", messaging=MESSAGING[version]), version=version)

    assert shown(b"k") == [*job.read(), *job.wait(EXPIRY_S // 2)]
    assert 0 == job.books()["mutations.pending"]


def test_k07_a_tail_gives_an_event_at_each_sync_and_leaves_little(tmp_path: Path) -> None:
    """K07: what a sync made durable is read in the next pass; one completed segment remains."""
    job = Job(tmp_path, disposal="delete")
    for number in range(9):
        key = b"k%d" % number
        for node in NODES:
            job.log(node, insert(key))
        assert shown(key) == job.read()
        left = {node: len(list((tmp_path / node).glob("*.log"))) for node in NODES}
        assert max(left.values()) <= 2, left


def test_k08_many_segments_are_read_once_each(tmp_path: Path) -> None:
    """K08: forty segments of three nodes and four splits are read once each, batch by batch."""
    job = Job(tmp_path, splits=4, segments_per_batch_max=1)
    names = [b"k%03d" % number for number in range(40)]
    for name in names:
        for node in NODES:
            job.log(node, insert(name))

    assert shown(*names) == sorted(job.read())

    notes = [len(list((tmp_path / node / FOLDER).iterdir())) for node in NODES]
    assert [4, 4, 4] == notes


def test_p07_the_recorded_batch_replay_adds_no_event() -> None:
    """P07: what a batch log wrote twice on a node of the recorded ring is counted as a repeat."""
    name = "5.0-ring"
    nodes = {f"node{n}": str(recording(name) / "segments" / f"node{n}") for n in (1, 2, 3)}
    options = {"nodes": nodes, "schema": str(recording(name) / "schema.cql"), "consistency": "ONE"}
    made = source(options)
    found = list(batches(open_all(made).values()))
    made.close()
    repeats = sum(
        count
        for batch in {batch.split: batch for batch in found}.values()
        for name, count in batch.end.books().items()
        if name.endswith(".repeat")
    )

    assert repeats > 0
