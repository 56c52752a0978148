"""The hold on a real node: an agent keeps what a job needs, and Cassandra still accepts writes."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.serde.schemas.lookup import JobSchemas
from headrace.sources.cassandra.logs.pins import FOLDER
from real.load import Load, make_tables
from real.node.large_rows import LargeRows, bytes_in
from real.ring_jobs import agents, into, job, published, received, wait_for
from real.servers.cassandra import CURRENT, Cassandra, Release
from real.servers.ring import connected
from real.stream import HEADRACE, Worker

pytestmark = pytest.mark.real

SPACE_MIB = 8
CHANGES = 6_500
PADDING = 12_000
NAME = "held"
SETTINGS = {
    "cdc_total_space": f"{SPACE_MIB}MiB",
    "cdc_block_writes": True,
    "cdc_free_space_check_interval": "100ms",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """Run a node that refuses writes when there is more than so much in `cdc_raw`."""
    release = Release(CURRENT.version, CURRENT.java, SETTINGS)
    with Cassandra(tmp_path_factory.mktemp("small") / "node", release=release) as node:
        yield node


@pytest.fixture
def small(running: Cassandra) -> Cassandra:
    """Return that node, of which no job needs anything any more."""
    shutil.rmtree(running.cdc_raw / FOLDER, ignore_errors=True)
    return running


def said(folder: Path, node: Cassandra) -> str:
    """Return what the agent of *node* logged."""
    return (folder / f"agent-{node.host}" / "output.log").read_text()


def test_a_job_that_stands_stops_no_writes(
    small: Cassandra, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Three times `cdc_total_space` is written while no job reads; all of it is published later.

    Cassandra's link of a segment goes when it is final and held, and the held one when the job has
    committed past it (I5).
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
                assert 0 == first.wait()  # From here on the agent knows what each job needs.
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


def test_without_room_the_nodes_own_limit_holds(small: Cassandra, tmp_path: Path) -> None:
    """G10: nothing is held on a disk that is full, so `cdc_raw` fills and writes are refused.

    What was taken is published, and then the node takes writes again.
    """
    hold = tmp_path / "hold"
    no_room = ("--hold", str(hold), "--hold-min-free", "1000TiB")
    with (
        closing(LargeRows(small, "refused", tmp_path)) as rows,
        agents([small], tmp_path, *no_room) as through,
    ):
        with rows.published(through):
            assert rows.is_taken()
        assert rows.fill(4 * SPACE_MIB)
        assert 0 == bytes_in(hold)
        with rows.published(through):
            wait_for(rows.is_taken, "the node takes no writes again")

        assert (rows.taken, []) == (rows.came(), rows.gaps())
    assert "hold_full" in said(tmp_path, small)


def test_what_was_dropped_is_reported(small: Cassandra, tmp_path: Path) -> None:
    """G08, G09: `cdc_block_writes: false` loses nothing that an agent holds; else there are gaps.

    Of what went unseen while the agent was away, and of what the hold dropped to make room (I10).
    """
    hold = tmp_path / "hold"
    first, second, third = (tmp_path / each for each in ("first", "second", "third"))
    for each in (first, second, third):
        each.mkdir()
    small.restart(cdc_block_writes=False)
    with closing(LargeRows(small, "dropped", tmp_path)) as rows:
        with agents([small], first, "--hold", str(hold)) as through:
            with rows.published(through):
                assert rows.is_taken()
            rows.write(3 * SPACE_MIB)
            assert bytes_in(hold) > 2 * SPACE_MIB << 20
            with rows.published(through):
                pass
        assert (rows.taken, []) == (rows.came(), rows.gaps())
        held = set(rows.taken)
        rows.rush(3 * SPACE_MIB)
        with agents([small], second, "--hold", str(hold)) as through, rows.published(through):
            pass
        unseen = rows.gaps()
        assert "possible" in unseen
        bounds = ("--hold-bytes-max", "3MiB", "--hold-full", "drop_oldest")
        with agents([small], third, "--hold", str(hold), *bounds) as through:
            rows.rush(SPACE_MIB // 2)
            small.nodetool("flush")  # The commit log has links, too: while it has, nothing is won.
            wait_for(lambda: "hold_dropped" in said(third, small), "the hold drops nothing")
            with rows.published(through):
                pass
        assert len(unseen) < len(rows.gaps())
        assert held < rows.came() < rows.taken
    command = [*HEADRACE, "verify", str(tmp_path / "job.yaml")]
    assert 0 == subprocess.run(command, check=False, capture_output=True, timeout=180).returncode  # noqa: S603 (ours)
