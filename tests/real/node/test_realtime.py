"""Both modes beside a real node and broker: what dies loses nothing, and a pause of the sink ends.

What the node synced is what counts: written without a wait for it, a change may be lost with the
node, and then it is in neither the table nor the topic.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest
from cassandra.cluster import Session

from headrace.connector.serde.schemas.lookup import JobSchemas
from real.load import Load, make_tables
from real.ring_jobs import (
    Received,
    directories,
    into,
    job,
    published,
    received,
    selected,
    unlisted,
    wait_for,
)
from real.servers.cassandra import Cassandra
from real.servers.kafka import Kafka
from real.servers.ring import connected
from real.stream import Worker

pytestmark = pytest.mark.real

A_SECOND = 100
WAYS: Final[Mapping[str, tuple[str, bool]]] = {
    "log": ("log", False),
    "realtime": ("realtime", False),
    "once": ("realtime", True),
}
"""Of each job its mode, and whether it writes exactly once."""
PERIODIC: Final = "periodic"
SYNCS: Final[Mapping[str, Mapping[str, str]]] = {
    PERIODIC: {"commitlog_sync_period": "100ms"},
    "group": {"commitlog_sync_period": "0ms", "commitlog_sync_group_window": "10ms"},
    "batch": {"commitlog_sync_period": "0ms"},
}
BUFFER_BYTES = 100_000


class Jobs:
    """One job for each way, which read the same log; each has a topic of its own."""

    def __init__(self, node: Cassandra, broker: Kafka, keyspace: str, folder: Path) -> None:
        """Start nothing yet."""
        self._node, self._servers = node, broker.bootstrap_servers
        self._keyspace, self._folder = keyspace, folder
        self._stack = ExitStack()
        self.workers: list[Worker] = []

    def start(self) -> None:
        """Start a worker for each job."""
        self.workers.clear()
        points = [f"{self._node.host}:{self._node.port}"]
        for way, (mode, is_once) in WAYS.items():
            folder = self._folder / way
            folder.mkdir(exist_ok=True)
            nodes = directories([self._node])
            document = job(points, self._keyspace, nodes, consistency="ONE", mode=mode)
            document["job"] = self._topic(way)
            sink = into(self._servers, self._topic(way))
            document["sink"] = {**sink, "exactly.once": is_once}
            document["state"] = str(folder / "state.db")
            self.workers.append(self._stack.enter_context(Worker(document, folder)))

    def wait_for_more(self, what: str) -> None:
        """Wait until each topic has messages that it has not now."""
        before = {way: self._published(way) for way in WAYS}
        wait_for(lambda: all(self._published(way) > before[way] for way in WAYS), what)

    def found(self, load: Load, allowed: set[bytes]) -> Iterator[tuple[object, ...]]:
        """Yield what each topic has wrong; wait until it has all but what is *allowed* to miss."""
        wanted = set(load.expected) - allowed
        for way, (_, is_once) in WAYS.items():
            with closing(JobSchemas(self._folder / way / "state.db")) as schemas:

                def came() -> bool:
                    found = received(self._servers, self._topic(way), schemas)  # noqa: B023
                    return wanted <= set(found.facts) and found.rows == selected(load)

                wait_for(came, f"not all came to {way}")
                found = received(self._servers, self._topic(way), schemas)
            surplus = set(found.facts) - set(load.expected)
            repeated = repeats(found) if is_once else []
            yield way, surplus, unlisted(load, found), found.notices, repeated

    def close(self) -> None:
        """End all workers."""
        self._stack.close()

    def _published(self, way: str) -> int:
        return published(self._servers, self._topic(way))

    def _topic(self, way: str) -> str:
        return f"{self._keyspace}-{way}"


def repeats(found: Received) -> list[object]:
    """Return the changes that came more than once under one mutation."""
    copies = {said: [copy[:2] for copy in copies] for said, copies in found.copies.items()}
    return [said for said, each in copies.items() if len(set(each)) < len(each)]


def session_of(node: Cassandra, stack: ExitStack) -> Session:
    """Return a session on *node* until *stack* ends."""
    return stack.enter_context(connected([node.host], node.port)).connect()


def test_what_dies_loses_nothing(tmp_path: Path) -> None:
    """Worker, broker and node are killed while each way to sync the commit log is used."""
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(tmp_path / "broker"))
        node = Cassandra(tmp_path / "node")
        stack.callback(node.kill)
        node.set(commitlog_sync=PERIODIC, **SYNCS[PERIODIC])
        node.start()
        session = session_of(node, stack)
        make_tables(session, "dies", replicas=1)
        load = Load(session, "dies")
        jobs = Jobs(node, kafka, "dies", tmp_path)
        stack.callback(jobs.close)
        jobs.start()
        allowed: set[bytes] = set()
        following = [*list(SYNCS)[1:], PERIODIC]
        for sync, then in zip(SYNCS, following, strict=True):
            with load.flowing(A_SECOND):
                jobs.wait_for_more(f"nothing came with sync {sync}")
                for worker in jobs.workers:
                    worker.kill()
                jobs.start()
                jobs.wait_for_more("the workers do not go on")
                kafka.kill()
                kafka.start()
                jobs.wait_for_more("they do not go on with the broker")
                node.kill()
                if sync == PERIODIC:
                    allowed |= set(load.expected)
                node.set(commitlog_sync=then, **SYNCS[then])
                node.start()
                jobs.wait_for_more("they do not go on with the node")

        for way, *amiss in jobs.found(load, allowed):
            assert [set(), [], [], []] == amiss, way
        assert [0, 0, 0] == [worker.stop() for worker in jobs.workers]


def test_a_paused_broker_ends_the_mode_for_a_while(
    node: Cassandra, broker: Kafka, tmp_path: Path
) -> None:
    """The buffer becomes full, the mode is log; when the broker answers again, realtime returns."""
    with ExitStack() as stack:
        session = session_of(node, stack)
        make_tables(session, "paused", replicas=1)
        load = Load(session, "paused")
        points = [f"{node.host}:{node.port}"]
        options = {
            "mode": "realtime",
            "realtime.buffer_bytes": BUFFER_BYTES,
            "realtime.return_after_seconds": 1.0,
        }
        document = job(points, "paused", directories([node]), consistency="ONE", **options)
        document["sink"] = into(broker.bootstrap_servers, "paused")
        worker = stack.enter_context(Worker(document, tmp_path))

        def changes() -> list[Mapping[str, str]]:
            lines = worker.log.read_text().splitlines()
            return [json.loads(line) for line in lines if '"event":"mode_changed"' in line]

        def is_on() -> bool:
            return ["realtime"] == [each["after"] for each in changes()[-1:]]

        def overflows() -> int:
            return sum(each["reason"] == "buffer_full" for each in changes())

        # What other tests left in the log may be too much for the buffer at first.
        wait_for(is_on, "the mode is not realtime")
        with load.flowing(A_SECOND):
            wait_for(lambda: published(broker.bootstrap_servers, "paused") > 0, "nothing came")
            before = overflows()
            broker.pause()
            try:
                wait_for(lambda: overflows() > before, "the buffer does not become full")
            finally:
                broker.resume()
            wait_for(is_on, "realtime does not return")
        wanted = set(load.expected)
        with closing(JobSchemas(tmp_path / "state.db")) as schemas:

            def came() -> bool:
                return wanted <= set(received(broker.bootstrap_servers, "paused", schemas).facts)

            wait_for(came, "not all came")
            found = received(broker.bootstrap_servers, "paused", schemas)
        assert 0 == worker.stop()
        assert (set(), []) == (set(found.facts) - wanted, unlisted(load, found))
        assert selected(load) == found.rows
