"""Everything around the workers fails, and the ring changes, while it is written to.

The second test continues with the node that came in the first one, and has it leave.
"""

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from cassandra.cluster import Session
from cassandra.protocol import ConfigurationException

from headrace.connector.serde.schemas.lookup import JobSchemas
from headrace.connector.stores.cassandra.session import CassandraStoreConfig
from headrace.connector.stores.cassandra.store import CassandraStore
from headrace.plugins import RecordSchema
from headrace.plugins.stores.contract import WorkerRow
from helpers.servers.ports import HOST
from real.load import Load, make_tables
from real.ring_jobs import (
    Received,
    agents,
    directories,
    into,
    job,
    published,
    received,
    selected,
    unlisted,
    wait_for,
)
from real.servers.cassandra import CENTRE, Cassandra
from real.servers.kafka import Kafka
from real.servers.proxy import Proxy
from real.servers.ring import Ring
from real.stream import Worker

pytestmark = pytest.mark.real

NAME = "chaos"
A_SECOND = 100
LEASE_SECONDS = 4
SPLITS = 8
CHANGED = "changed"
SECOND = "second"  # The data centre of those that come later.
COPIES = {
    "four copies of a row": "'class': 'SimpleStrategy', 'replication_factor': 4",
    "three copies": "'class': 'SimpleStrategy', 'replication_factor': 3",
    "a data centre was added": f"'class': 'NetworkTopologyStrategy', '{CENTRE}': 3, '{SECOND}': 1",
    "it was taken away": "'class': 'SimpleStrategy', 'replication_factor': 3",
}
SEEDS = 3  # Nodes that a ring begins with.
WRITTEN_WITHOUT_BROKER = 500  # Changes.
LINES_SHOWN = 100  # Of each worker's log, when a test fails.


class Machines:
    """Two that run the job: one beside the nodes' directories, one that asks their agents.

    They share the splits through a store that can be cut off.
    """

    def __init__(
        self, folder: Path, ring: Ring, node: Cassandra, proxy: Proxy, broker: Kafka
    ) -> None:
        """Start nothing yet. The store is in *node*; the machines find it through *proxy*."""
        self.nodes = list(ring.nodes)  # Those that were ever in the ring: their logs are needed.
        self._folder = folder
        self._ring = ring
        self._stack = ExitStack()
        self._servers = broker.bootstrap_servers
        self._agents = 0
        self._node, self._proxy = node, proxy
        self.store = CassandraStoreConfig(
            contact_points=(f"{HOST}:{proxy.port}",),
            keyspace="chaos_store",
            replication_factor=1,
            request_seconds_max=10.0,
        )

    def near(self, *arguments: str) -> Worker:
        """Start the one beside the nodes, with those that are known by now."""
        return self._started("near", directories(self.nodes), *arguments)

    def far(self) -> Worker:
        """Start the one elsewhere, and an agent for it on each node."""
        self._agents += 1
        folder = self._folder / f"agents{self._agents}"
        folder.mkdir()
        return self._started("far", self._stack.enter_context(agents(self.nodes, folder)))

    def _started(self, name: str, nodes: Mapping[str, object], *arguments: str) -> Worker:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        store = {
            "plugin": "cassandra",
            "contact_points": list(self.store.contact_points),
            "keyspace": self.store.keyspace,
            "replication_factor": self.store.replication_factor,
            "request_seconds_max": self.store.request_seconds_max,
        }
        runtime = {"lease_seconds": LEASE_SECONDS, "commit_max_seconds": 0.5}
        given = {"store": store, "sink": into(self._servers, NAME), "runtime": runtime}
        # Leases of another plan would be counted from the start.
        document = job(self._ring.contact_points, NAME, nodes, splits=SPLITS) | given
        return self._stack.enter_context(Worker(document, folder, *arguments))

    def published(self) -> int:
        """Return how many messages there are."""
        return published(self._servers, NAME)

    def wait_for_more(self, what: str) -> None:
        """Wait until something is published that was not yet."""
        before = self.published()
        wait_for(lambda: self.published() > before, what)

    def outlast_leases(self, workers: Sequence[Worker]) -> None:
        """Cut the store off until none of the leases of *workers* can be in force."""
        with self._store_itself() as store:
            self._proxy.cut()
            wait_for(
                lambda: all(row.silent_ms > 1_000 * LEASE_SECONDS for row in _of(workers, store)),
                "they still reach the store",
            )
            self._proxy.mend()

    def pause(self, worker: Worker) -> None:
        """Stop the process of *worker*, which has splits, until others have them all."""
        with self._store_itself() as store:

            def has_splits() -> bool:
                names = {row.owner.worker for row in _of([worker], store)}
                return any(row.owner in names for row in store.leases())

            wait_for(has_splits, "it has nothing to do")
            worker.send(signal.SIGSTOP)
            wait_for(lambda: not has_splits(), "nobody takes over what it had")
            worker.send(signal.SIGCONT)

    def _store_itself(self) -> closing[CassandraStore]:
        """Open the store without the proxy."""
        place = f"{self._node.host}:{self._node.port}"
        return closing(CassandraStore.open_job(replace(self.store, contact_points=(place,)), NAME))

    def __enter__(self) -> Self:
        """Return them."""
        return self

    def __exit__(self, *_: object) -> None:
        """End what was started, and show what the workers warned of if the test fails."""
        self._stack.close()
        for log in sorted(self._folder.glob("*/worker.log")):
            lines = log.read_text().splitlines()
            unusual = [line for line in lines if '"level":"info"' not in line]
            sys.stdout.write("\n".join([str(log), *unusual[-LINES_SHOWN:], *lines[-3:], ""]))


def _of(workers: Sequence[Worker], store: CassandraStore) -> Sequence[WorkerRow]:
    """Return what the store knows of *workers*, which it may have forgotten."""
    processes = {worker.process_id for worker in workers}
    return [row for row in store.workers() if row.owner.pid in processes]


class StoreSchemas:
    """The schemas that a store has."""

    def __init__(self, store: CassandraStore) -> None:
        """Ask *store*."""
        self._store = store

    def get(self, schema_id: bytes) -> RecordSchema:
        """Return the schema with that id."""
        found = self._store.schema(schema_id)
        assert found is not None
        return found


@pytest.fixture
def load(ring: Ring) -> Iterator[Load]:
    """Return writes to new tables."""
    with ring.connected() as cluster:
        session = cluster.connect()
        make_tables(session, NAME)
        yield Load(session, NAME)


def suffer(machines: Machines, ring: Ring, broker: Kafka, load: Load) -> tuple[Worker, Worker]:
    """Let everything happen, most of it one after the other; return the two workers that run."""
    near = machines.near()
    wait_for(lambda: machines.published() > 0, "nothing came")
    far = machines.far()
    wait_for(lambda: "split_started" in far.log.read_text(), "the second one has nothing to do")
    with ThreadPoolExecutor(1) as pool:
        joins = pool.submit(ring.add, 1 << 62, centre=SECOND)
        broker.pause()
        enough = load.expected.total() + WRITTEN_WITHOUT_BROKER
        wait_for(lambda: load.expected.total() >= enough, "nothing is written")
        machines.outlast_leases((near, far))
        broker.resume()
        machines.wait_for_more("it does not go on when broker and store are back")
        near.kill()
        fourth = joins.result()
    machines.nodes.append(fourth)
    near = machines.near()
    machines.pause(far)
    third = ring.nodes[2]
    third.kill()
    assert 0 == far.stop()
    far = machines.far()
    machines.wait_for_more("it does not go on without a node")
    third.start()
    ring.nodes[0].nodetool("repair", "--full", NAME)
    machines.wait_for_more("it does not go on after a repair")
    return near, far


def test_no_change_is_missing(
    ring: Ring, node: Cassandra, load: Load, broker: Kafka, tmp_path: Path
) -> None:
    """Workers, nodes, broker and store fail, a node comes, a repair runs.

    TP01, TP02, TP03: what comes twice is of the closed list, and the fold of all is the table.
    """
    with Proxy(node.port) as proxy, Machines(tmp_path, ring, node, proxy, broker) as machines:
        with load.flowing(A_SECOND):
            workers = suffer(machines, ring, broker, load)
        store = CassandraStore.open_job(machines.store, NAME)
        schemas = StoreSchemas(store)

        def found() -> Received:
            return received(broker.bootstrap_servers, NAME, schemas)

        wait_for(lambda: machines.published() >= len(load.expected), "not so many came")
        try:
            wait_for(lambda: not load.expected - found().facts, "not all came")
        finally:
            missing = list((load.expected - found().facts).items())
            sys.stdout.write(f"{len(missing)} changes are missing: {missing[:3]}\n")
        assert [0, 0] == [worker.stop() for worker in workers]
        assert 0 == machines.near("--until-idle").wait()
        came = found()
        store.close()

    assert set(load.expected) == set(came.facts)
    assert [] == unlisted(load, came)
    assert selected(load) == came.rows


def takes(session: Session, replication: str) -> bool:
    """Let the ring keep copies so, if all of it knows by now that no node moves any more."""
    try:
        session.execute(f"ALTER KEYSPACE {CHANGED} WITH replication = {{{replication}}}")
    except ConfigurationException:
        return False
    return True


def walk(ring: Ring, fourth: Cassandra, spare: Cassandra, session: Session) -> Iterator[str]:
    """Change the ring step by step; yield what was done last."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: node.nodetool("cleanup", CHANGED), ring.nodes[:3]))
    yield "a clean-up"
    ring.move(fourth, 3 << 61)
    yield "a move"
    for what, replication in COPIES.items():
        wait_for(partial(takes, session, replication), "the ring does not come to rest")
        if SECOND in replication:
            fourth.nodetool("rebuild", "-ks", CHANGED, "--", CENTRE)
        yield what
    fourth.kill()
    ring.replace(fourth, spare)
    yield "another node took its place"


def test_no_change_is_missing_where_the_ring_changes(
    ring: Ring, bootstrap_servers: str, tmp_path: Path
) -> None:
    """TP02: a node is moved, replaced, loses its disk, and leaves; copies and a centre come and go.

    At each seam each change comes once. Of the disk that is lost what was read cannot be compared
    any more, so what a stream brings again afterwards may come again, in other bytes (line 36).
    """
    fourth = ring.nodes[3] if len(ring.nodes) > SEEDS else ring.add(1 << 62, centre=SECOND)
    spare = ring.spare(fourth)
    spare.cdc_raw.mkdir()
    with ring.connected() as cluster:
        session = cluster.connect()
        make_tables(session, CHANGED)
        load = Load(session, CHANGED)
        nodes = directories([*ring.nodes, spare])
        options = {"gaps": "expire", "consistency": "EACH_QUORUM"}
        document = job(ring.contact_points, CHANGED, nodes, **options)
        document["sink"] = into(bootstrap_servers, CHANGED)

        def count() -> int:
            return published(bootstrap_servers, CHANGED)

        def found() -> Received:
            return received(bootstrap_servers, CHANGED, JobSchemas(tmp_path / "state.db"))

        def goes_on(what: str) -> None:
            wanted = load.expected.total()
            wait_for(lambda: count() >= wanted, f"it does not go on after {what}")

        with Worker(document, tmp_path) as worker:
            with load.flowing(A_SECOND):
                goes_on("its start")
                for what in walk(ring, fourth, spare, session):
                    goes_on(what)
            goes_on("the last write")
            before = found()
            assert (set(), []) == (set(load.expected) - set(before.facts), unlisted(load, before))
            with load.flowing(A_SECOND):
                spare.kill()
                spare.lose_disk()
                goes_on("a disk was lost")
                ring.join(spare)
                goes_on("the node was back")
                ring.remove(spare)
                goes_on("it had left")
            wait_for(lambda: set(load.expected) <= set(found().facts), "not all came")
            assert 0 == worker.stop()
        came = found()
        assert set(load.expected) == set(came.facts)
        assert selected(load) == came.rows
        assert {spare.host} == {notice["node"] for notice in came.notices}
