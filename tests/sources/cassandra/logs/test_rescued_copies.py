"""A few copies that wait do not keep their segments: their bytes are kept beside the notes."""

import os
from pathlib import Path

import pytest

from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.logs.pins import COPIES_MAX
from headrace.sources.cassandra.retention.disposal import RESCUE_MS
from helpers.logs.forged import insert
from helpers.logs.holding import DELETE, Node, hold, hold_on, job, name, past, retention_of
from helpers.logs.node_logs import batches, open_all, source

WAIT_S = 1_800  # Longer than a segment waits for copies.


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node that wrote nothing yet."""
    return Node(tmp_path / "n1")


def test_few_copies_do_not_keep_a_segment(node: Node) -> None:
    """After a while what still waits in it is copied out, and stays as long as it is needed."""
    node.write(1, [b"a", b"b", b"c"])
    node.write(2, [b"d"])
    clock = DrivenClock()
    retention = retention_of(node.log, DELETE, clock)
    retention.check()
    mine = hold_on(retention, "orders")
    info = node.log.segments()[0]
    made = insert(b"b", b"b")
    content = node.log.find(info.name).read_bytes()
    end = content.index(made) + len(made) + 4
    mine.register("0", past(2), {1: [(end, len(made))]})
    for number in (1, 2):
        os.utime(node.raw / name(number), (clock.wall_ms() / 1000,) * 2)
    assert 0 == mine.dispose()

    clock.advance(RESCUE_MS)
    assert 1 == mine.dispose()

    assert [2] == node.listed()
    found = node.log.fetch(1, end, len(made))
    assert found is not None
    assert (made, 12) == found
    mine.register("0", past(2), {})
    mine.dispose()
    assert None is node.log.fetch(1, end, len(made))


def test_what_was_saved_stays_for_who_has_not_begun(node: Node) -> None:
    """A split of a new plan finds in its state which copies it needs, and says so only then."""
    node.write(1, [b"a"])
    node.write(2, [b"d"])
    clock = DrivenClock()
    mine = hold_on(retention_of(node.log, DELETE, clock), "orders")
    made = insert(b"a", b"a")
    content = node.log.find(name(1)).read_bytes()
    end = content.index(made) + len(made) + 4
    pending = {1: [(end, len(made))]}
    mine.register("1-of-1", past(2), pending)
    for number in (1, 2):
        os.utime(node.raw / name(number), ((clock.wall_ms() - RESCUE_MS) / 1000,) * 2)
    assert 1 == mine.dispose()

    mine.withdraw(["1-of-1"])
    mine.register_all(["1-of-2", "2-of-2"])
    mine.dispose()

    assert (made, 12) == node.log.fetch(1, end, len(made))
    mine.register("1-of-2", past(2), pending)
    mine.register("2-of-2", past(2), {})
    mine.dispose()
    assert (made, 12) == node.log.fetch(1, end, len(made))


def test_many_copies_keep_it(node: Node) -> None:
    """Where much of a segment waits, it stays whole."""
    node.write(1, [b"a"])
    node.write(2, [b"d"])
    mine = hold(node)
    for number in (1, 2):
        os.utime(node.raw / name(number), (0, 0))
    mine.register("0", past(2), {1: [(n, 1) for n in range(COPIES_MAX + 1)]})

    assert 0 == mine.dispose()


def test_a_rescued_copy_is_published_when_its_turn_comes(tmp_path: Path) -> None:
    """A mutation whose segment went while it waited for a second copy is whole all the same."""
    nodes = [Node(tmp_path / each) for each in ("n1", "n2", "n3")]
    clock = DrivenClock()
    waits = {"expiry_seconds": WAIT_S, "dedup_window_seconds": WAIT_S}
    options = job(nodes, consistency="QUORUM", expired="publish", **waits)
    made = source(options, clock)
    for each in nodes:
        each.write(1, [b"late"] if each is nodes[0] else [])
        each.write(2)
        at = clock.wall_ms() / 1000 - RESCUE_MS
        for number in (1, 2):
            os.utime(each.raw / name(number), (at, at))
    (reader,) = open_all(made).values()
    for batch in batches([reader]):
        reader.release(batch.end)
    assert [2] == nodes[0].listed()

    found = []
    for _ in range(WAIT_S // 9):  # Split time stops where logs are not listed for longer than 10 s.
        clock.advance(9_000)
        found += [len(list(batch.records())) for batch in batches([reader])]

    assert [1] == [count for count in found if count]
    made.close()
