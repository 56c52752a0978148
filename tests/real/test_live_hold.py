"""The hold on a real node: an agent keeps what a job needs, and Cassandra goes on taking writes."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cassandra import WriteFailure
from cassandra.cluster import Session
from load import Load, make_tables
from ring_jobs import agents, into, job, published, received, wait_for
from servers.cassandra import CURRENT, Cassandra, Release
from servers.ring import connected
from stream import Worker

from headrace.connector.serde.schemas import JobSchemas

pytestmark = pytest.mark.real

SPACE_MIB = 8
CHANGES = 25_000
PADDING = 3_000
NAME = "held"
SETTINGS = {
    "cdc_total_space": f"{SPACE_MIB}MiB",
    "cdc_block_writes": True,
    "cdc_free_space_check_interval": "100ms",
}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Cassandra]:
    """Run a node that refuses writes when there is more than so much in `cdc_raw`."""
    release = Release(CURRENT.version, CURRENT.java, SETTINGS)
    with Cassandra(tmp_path / "node", release=release) as node:
        yield node


def bytes_in(folder: Path) -> int:
    """Return how much the segments in *folder* have."""
    total = 0
    for path in folder.glob("CommitLog-*.log"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def refused(session: Session) -> bool:
    """Write until Cassandra takes no more, or four times what it should take came in."""
    insert = session.prepare(f"INSERT INTO {NAME}.items (id, name) VALUES (?, ?)")  # noqa: S608 (ours)
    try:
        for number in range(4 * SPACE_MIB * 10):
            session.execute(insert, (number, "x" * 100_000))
    except WriteFailure:
        return True
    return False


def test_a_job_that_stands_stops_no_writes(
    small: Cassandra, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Three times `cdc_total_space` is written while nobody reads; all of it is published later.

    Cassandra's link of a segment goes when it is final and held, and the held one when the job has
    committed past it (I5). Without the agent the same node refuses writes.
    """
    hold = tmp_path / "hold"
    points = [f"{small.host}:{small.port}"]
    with connected([small.host], small.port) as cluster:
        session = cluster.connect()
        make_tables(session, NAME, replicas=1)
        load = Load(session, NAME, padding=PADDING)
        with agents([small], tmp_path, "--hold", str(hold)) as through:
            document = job(points, NAME, through, consistency="ONE")
            document["sink"] = into(bootstrap_servers, NAME)
            with Worker(document, tmp_path, "--until-idle") as first:
                assert 0 == first.wait()  # From here on the agent knows who needs what.
            load.write(CHANGES, concurrent=8)

            wait_for(lambda: bytes_in(small.cdc_raw) < 4 << 20, "finished segments stay")
            assert bytes_in(hold) > 2 * SPACE_MIB << 20
            assert 0 == published(bootstrap_servers, NAME)
            with Worker(document, tmp_path) as worker:
                wanted = len(load.expected)
                wait_for(lambda: published(bootstrap_servers, NAME) >= wanted, "not all came")
                wait_for(lambda: bytes_in(hold) < 4 << 20, "what nobody needs is still held")
                assert 0 == worker.stop()
        found = received(bootstrap_servers, NAME, JobSchemas(tmp_path / "state.db"))

        assert Counter() == load.expected - found.facts
        assert Counter() == found.facts - load.expected - load.repeated
        assert refused(session)
