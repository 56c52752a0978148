"""A rolling upgrade of real nodes from 4.1 to 5.0, while they are written to."""

from collections import Counter
from pathlib import Path

import pytest

from headrace.connector.serde.schemas.lookup import JobSchemas
from real.load import Load, make_tables
from real.ring_jobs import directories, into, job, published, received, selected, wait_for
from real.servers.cassandra import CURRENT, RELEASES
from real.servers.ring import Ring
from real.stream import Worker

pytestmark = pytest.mark.real

A_SECOND = 100
MIXED = 2_000
NAME = "upgraded"


def test_each_change_comes_once(bootstrap_servers: str, tmp_path: Path) -> None:
    """TP02: before, while and after two of three nodes are upgraded, whose bytes may differ.

    A row with two collections, one of which is replaced, has other bytes in 4.1 than in 5.0.
    """
    with Ring(tmp_path / "ring", (RELEASES["4.1"],) * 3) as ring, ring.connected() as cluster:
        session = cluster.connect()
        make_tables(session, NAME)
        load = Load(session, NAME)
        document = job(ring.contact_points, NAME, directories(ring.nodes))
        document["sink"] = into(bootstrap_servers, NAME)
        with Worker(document, tmp_path) as worker:
            with load.flowing(A_SECOND):
                for node in ring.nodes[:2]:
                    node.upgrade(CURRENT)
                    ring.settle(ring.nodes[2])
            load.write(MIXED)
            wanted = len(load.expected)
            wait_for(lambda: published(bootstrap_servers, NAME) >= wanted, "not all came")
            assert 0 == worker.stop()
        with Worker(document, tmp_path, "--until-idle") as again:
            assert 0 == again.wait()
        found = received(bootstrap_servers, NAME, JobSchemas(tmp_path / "state.db"))

        assert Counter() == load.expected - found.facts
        assert Counter() == found.facts - load.expected - load.repeated
        assert selected(load) == found.rows
