"""What levels ask for while a real node is down, and two jobs on the same logs."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.connector.serde.schemas.lookup import JobSchemas
from headrace.sources.cassandra.logs.pins import FOLDER
from real.load import Load, make_tables
from real.ring_jobs import directories, into, job, published, received, wait_for
from real.servers.cassandra import Cassandra
from real.servers.ring import Ring
from real.stream import Worker, completed_segments

pytestmark = pytest.mark.real

BEFORE, MEANWHILE = 300, 6_000  # Several segments, in which one job is far behind the other.
LEVELS = ("ONE", "ALL")


@pytest.fixture
def load(ring: Ring) -> Iterator[Load]:
    """Return writes to new tables, on nodes that no other job needs segments of any more."""
    for node in ring.nodes:
        shutil.rmtree(node.cdc_raw / FOLDER, ignore_errors=True)
    with ring.connected() as cluster:
        session = cluster.connect()
        make_tables(session, "levels")
        yield Load(session, "levels", padding=1_500)


def disposed(nodes: list[Cassandra]) -> set[tuple[str, int]]:
    """Return the finished segments that are still there."""
    return {(node.host, number) for node in nodes for number in completed_segments(node.cdc_raw)}


def test_all_waits_for_a_node_and_one_for_none(
    ring: Ring, load: Load, bootstrap_servers: str, tmp_path: Path
) -> None:
    """ALL publishes nothing early and everything later, ONE at once and once.

    TP05. Both dispose of what they read, each has a state file of its own, and neither takes from
    the other what it still needs.
    """
    third = ring.nodes[2]
    topics = {level: f"levels-{level}" for level in LEVELS}

    def count(level: str) -> int:
        return published(bootstrap_servers, topics[level])

    with ExitStack() as stack:
        for level in LEVELS:
            folder = tmp_path / level
            folder.mkdir()
            document = job(
                ring.contact_points,
                "levels",
                directories(ring.nodes),
                consistency=level,
                disposal="delete",
            )
            sink = into(bootstrap_servers, topics[level])
            named = {"job": topics[level], "state": str(folder / "state.db"), "sink": sink}
            stack.enter_context(Worker(document | named, folder))
        load.write(BEFORE)
        before = load.expected.total()
        wait_for(lambda: all(count(level) >= before for level in LEVELS), "not all came")
        third.kill()
        load.write(MEANWHILE)
        wanted = load.expected.total()
        wait_for(lambda: count("ONE") >= wanted, "what one node has did not come")
        # A write that was not answered in time is made again, and may be published twice.
        assert before <= count("ALL") <= before + load.repeated.total()
        waiting = disposed(ring.nodes[:2])
        assert waiting
        third.start()
        wait_for(lambda: count("ALL") >= wanted, "not all came after the node was back")
        wait_for(lambda: not waiting & disposed(ring.nodes[:2]), "segments are kept for ever")
    for level in LEVELS:
        schemas = JobSchemas(tmp_path / level / "state.db")
        found = received(bootstrap_servers, topics[level], schemas)
        missing, surplus = load.expected - found.facts, found.facts - load.expected
        assert (Counter(), Counter()) == (missing, surplus - load.repeated), level
