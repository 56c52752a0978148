"""Delivery while workers and brokers stop and restart: K01, K02, K04 and K05.

Logs are forged; worker, state file and Kafka's client are real, and the broker is librdkafka's.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest
import structlog
from structlog.testing import LogCapture

from headrace.connector.stores import Commit
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from helpers.jobs.children import until
from helpers.jobs.committed import committed
from helpers.jobs.live_worker import delivered, working
from helpers.logs.forged import NOW_US, insert
from helpers.logs.gap_jobs import NODES, GapJob
from helpers.servers.mock_cluster import MockCluster

KEYS: Final = 3
TOPIC: Final = "delivered"
WHOLE: Final = "1\nCOMPLETED"
OUTSTANDING: Final = 40  # Records.


def rows(numbers: range) -> list[bytes]:
    """Return rows of a few keys, each written a microsecond after the one before."""
    return [insert(b"k%d" % (n % KEYS), b"%c" % n, at_us=n) for n in numbers]


def grow(job: GapJob, number: int, *sections: range, durable: int | None = None) -> None:
    """Let all nodes write a segment; of a live one only *durable* sections are synced."""
    made = segment([rows(each) for each in sections], segment_id=SEGMENT_ID + number)
    index = WHOLE if durable is None else str(made.section_ends[durable - 1])
    for node in NODES:
        write_segment(job.folder / node, made.content, segment_id=SEGMENT_ID + number, index=index)


def stored(job: GapJob, name: str = "orders") -> SqliteStore:
    """Return the store of a job."""
    return SqliteStore.open(job.folder / "state.db", name)


def test_k01_a_job_resumes_amid_a_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K01: after a restart nothing is read again that was durable, and the rest is read once."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path)
    grow(job, 0, range(4))
    grow(job, 1, range(4, 8), range(8, 12), durable=1)
    assert 0 == job.run()
    assert list(range(8)) == job.rows()

    for durable in (2, None):
        grow(job, 1, range(4, 8), range(8, 12), range(12, 16), durable=durable)
        assert 0 == job.run()

    assert list(range(16)) == job.rows()
    books = job.books()
    assert dict.fromkeys(NODES, 16) == {n: books[f"entries.{n}.read"] for n in NODES}
    assert 0 == job.run()
    assert list(range(16)) == job.rows()


def test_k02_of_two_writers_of_one_state_the_former_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K02: the former owner of a split gets an error with the new owner; the new state stays."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path)
    grow(job, 0, range(9))
    assert 0 == job.run()
    first, second = stored(job), stored(job)
    (split, *_) = [row.split for row in first.leases()]

    def commit(store: SqliteStore, owner: str, token: int) -> dict[str, str]:
        state = store.states()[0]
        assert state.position is not None
        made = Commit(
            split=split,
            plan=state.plan,
            token=token,
            owner=owner,
            previous=state.seq,
            seq=state.seq + 1,
            position=state.position,
            counters=state.counters,
        )
        return {name: str(error) for name, error in store.commit([made]).items()}

    mine = first.claim("first", first.leases(), 1_000)[split]
    assert {} == commit(first, "first", mine)
    theirs = second.claim("second", second.leases(), 1_000)[split]
    refused = commit(first, "first", mine)

    assert {split} == set(refused)
    assert f"split {split}: head carries token {theirs}, mine is {mine}" in refused[split]
    assert {} == commit(second, "second", theirs)
    second.dismiss("second")
    first.close()
    second.close()
    assert 0 == job.run()
    assert list(range(9)) == job.rows()


class Delivery:
    """A job that delivers into its own Kafka, by a worker on a thread."""

    def __init__(self, job: GapJob, cluster: MockCluster) -> None:
        """Make the client drop a message after a second, and retry for long."""
        self.job, self.cluster = job, cluster
        self.log = LogCapture()
        sink = {
            "plugin": "kafka",
            "bootstrap.servers": cluster.bootstrap_servers,
            "topic": TOPIC,
            "format": "json",
            "delivery.timeout.ms": 1_000,
            "request.timeout.ms": 500,
            "reconnect.backoff.max.ms": 100,
        }
        runtime = {
            "tick_min_ms": 5,
            "commit_max_seconds": 0.05,
            "batch_records_max": 5,
            "outstanding_records_max": OUTSTANDING,
            "retry_seconds_max": 300,
        }
        job.deliver(sink, runtime)

    def working(self) -> AbstractContextManager[None]:
        """Run the worker while the block runs."""
        log = structlog.wrap_logger(
            None, processors=[self.log], wrapper_class=structlog.stdlib.BoundLogger
        )
        return working(self.job.path, log.bind())

    def pauses(self) -> int:
        """Return how often a split paused because the sink failed."""
        return sum(entry["event"] == "split_pauses" for entry in self.log.entries)

    def delivered(self) -> int:
        """Return how many rows are delivered, by the committed books."""
        return delivered(self.job.folder / "state.db", "orders")

    def rows(self) -> dict[bytes, list[int]]:
        """Return what a consumer sees of each key, in its order."""
        found: defaultdict[bytes, list[int]] = defaultdict(list)
        for message in committed(self.cluster.bootstrap_servers, TOPIC):
            reported = json.loads(message.value() or b"")
            found[message.key() or b""].append(reported["timestampMicros"] - NOW_US)
        return found

    def left(self) -> set[int]:
        """Return the numbers of the segments that remain in the nodes' directories."""
        paths = [path for node in NODES for path in (self.job.folder / node).glob("*.log")]
        return {int(path.stem.rpartition("-")[2]) - SEGMENT_ID for path in paths}


@pytest.fixture
def delivery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Delivery]:
    """Return a job into its own Kafka, which deletes what it has read."""
    monkeypatch.chdir(tmp_path)
    with MockCluster() as cluster:
        yield Delivery(GapJob(tmp_path, disposal="delete"), cluster)


def check_order(delivery: Delivery, numbers: range) -> None:
    """Check that all rows arrived, and the newest of each key last, as in the log (I4)."""
    found = delivery.rows()
    assert set(numbers) == {n for each in found.values() for n in each}
    for each in found.values():
        last = list(reversed(dict.fromkeys(reversed(each))))
        assert sorted(last) == last


def test_k04_a_broker_goes_and_comes_back(delivery: Delivery) -> None:
    """K04: all that is logged while the broker is down arrives, and each key in log order."""
    grow(delivery.job, 0, range(30))
    with delivery.working():
        until(lambda: delivery.delivered() == 30, "nothing was delivered")
        delivery.cluster.down()
        for number in range(1, 5):
            grow(delivery.job, number, range(30 * number, 30 * number + 30))
        until(lambda: delivery.pauses() > 0, "nobody noticed")
        delivery.cluster.up()
        until(lambda: delivery.delivered() == 150, "something is missing")

    check_order(delivery, range(150))


def test_k05_what_could_not_be_sent_is_not_done(delivery: Delivery) -> None:
    """K05: no marker passes an unsent message, and no segment is deleted, until it was resent."""
    grow(delivery.job, 0, range(10))
    with delivery.working():
        until(lambda: delivery.delivered() == 10, "nothing was delivered")
        delivery.cluster.down()
        for number in range(1, 5):
            grow(delivery.job, number, range(10 * number, 10 * number + 10))
        until(lambda: delivery.pauses() > 0, "nothing failed")
        failed = delivery.delivered(), delivery.left() - {0}
        delivery.cluster.up()
        until(lambda: delivery.delivered() == 50, "it was not sent again")
        until(lambda: delivery.left() == {4}, "segments that are done are left")

    assert (10, {1, 2, 3, 4}) == failed
    check_order(delivery, range(50))
