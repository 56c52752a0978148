"""What brokers answer: too large, not leader, forbidden, out of order, slow, down."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from headrace.plugins import Disposition, Failure, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink, KafkaWriter
from helpers.jobs.children import until
from helpers.jobs.deliveries import Results, consume, context, delivery_of, drained
from helpers.jobs.live_worker import delivered, working
from helpers.servers.mock_cluster import MockCluster

pytestmark = pytest.mark.usefixtures("way")

DELIVERY = delivery_of((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
LINES = 200_000
LINE = json.dumps({"text": "x" * 500}) + "\n"  # 100 MB in all.
GROWTH_BYTES_MAX = 50_000_000
WINDOW_BYTES = 2_000_000
WINDOW_LINES = WINDOW_BYTES // len(LINE)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Return a cluster of the test's own."""
    with MockCluster() as made:
        yield made


@pytest.fixture
def writer(cluster: MockCluster) -> Iterator[KafkaWriter]:
    """Return a writer that is connected to it."""
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "topic": "t",
        "retry.backoff.ms": "10",
        "delivery.timeout.ms": "4000",
        "reconnect.backoff.max.ms": "100",
        "request.timeout.ms": "1000",
        # All three records in one batch: the mock broker, unlike a real one, takes a batch whose
        # predecessor it refused, and the client then counts the predecessor as delivered.
        "linger.ms": "1000",
        "batch.num.messages": "3",
    }
    made = KafkaSink(parse_config(KafkaConfig, options), context()).open()
    yield made
    made.close()


def written(cluster: MockCluster) -> list[bytes | None]:
    """Return the values that a consumer gets."""
    return [message.value() for message in consume(cluster.bootstrap_servers, "t")]


def submitted(writer: KafkaWriter) -> tuple[Collection[int], Sequence[Failure]]:
    """Return the result on three records of one key."""
    results = Results()
    writer.submit(DELIVERY, results)
    assert drained(writer)
    ((delivered, failures),) = results.all
    assert 3 == len(delivered) + len(failures)
    return delivered, failures


@pytest.mark.parametrize(
    "error",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
    ],
)
def test_what_the_client_repeats_itself_is_not_reported(
    cluster: MockCluster, writer: KafkaWriter, error: int
) -> None:
    """O12: a passing error ends in delivery, once and in order."""
    cluster.answer(error, error)

    assert (range(3), []) == submitted(writer)
    assert [b"1", b"2", b"3"] == written(cluster)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "kafka_topic_authorization_failed"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "kafka_cluster_authorization_failed"),
        (KafkaError.TOPIC_EXCEPTION, "kafka_topic_exception"),
    ],
)
def test_a_refusal_is_fatal(
    cluster: MockCluster, writer: KafkaWriter, error: int, code: str
) -> None:
    """O12: what no repetition changes stops the split, with the broker's reason."""
    cluster.answer(error, error, error)

    _, failures = submitted(writer)

    assert {(Disposition.FATAL, code)} == {(f.disposition, f.code) for f in failures}


@pytest.mark.parametrize(
    "error",
    [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP],
)
def test_a_batch_that_is_refused_is_sent_singly_and_then_together_again(
    cluster: MockCluster, writer: KafkaWriter, error: int
) -> None:
    """Only the record whose own message is refused is rejected; the mode ends with it."""
    cluster.answer(error)
    _, together = submitted(writer)
    assert {Disposition.RETRY} == {failure.disposition for failure in together}

    cluster.answer(error)
    _, singly = submitted(writer)
    assert [Disposition.REJECT] == [failure.disposition for failure in singly]

    cluster.answer(error)
    _, again = submitted(writer)
    assert {Disposition.RETRY} == {failure.disposition for failure in again}


def test_records_of_a_dead_producer_are_retried_by_a_new_one(
    cluster: MockCluster, writer: KafkaWriter
) -> None:
    """A fatal error of idempotence fails what is outstanding as retriable; then all continues."""
    cluster.answer(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)

    delivered, failures = submitted(writer)

    assert not delivered
    assert {Disposition.RETRY} == {failure.disposition for failure in failures}
    assert (range(3), []) == submitted(writer)
    assert [b"1", b"2", b"3"] == written(cluster)


def test_a_slow_broker_is_waited_for(cluster: MockCluster, writer: KafkaWriter) -> None:
    """What takes long is delivered all the same."""
    cluster.delay(300)

    assert (range(3), []) == submitted(writer)


def test_a_broker_that_comes_back_in_time_was_never_away(
    cluster: MockCluster, writer: KafkaWriter
) -> None:
    """An outage shorter than the client's time-out is not reported."""
    results = Results()
    cluster.down()
    writer.submit(DELIVERY, results)
    writer.drain(0)
    cluster.up()

    assert drained(writer)
    assert [(range(3), [])] == results.all


def test_a_broker_that_stays_away_is_a_reason_to_retry(
    cluster: MockCluster, writer: KafkaWriter
) -> None:
    """After the client's patience each record is reported as to be retried, and later arrives."""
    cluster.down()

    delivered, failures = submitted(writer)

    assert not delivered
    assert {Disposition.RETRY} == {failure.disposition for failure in failures}
    cluster.up()
    assert (range(3), []) == submitted(writer)


@dataclass
class Slow:
    """A worker in this process, and the cluster that it writes to."""

    cluster: MockCluster
    folder: Path

    def delivered(self) -> int:
        """Return how many lines are delivered, by the committed books."""
        return delivered(self.folder / "state.db", "lines")

    def running(self) -> AbstractContextManager[None]:
        """Run the worker on a thread."""
        return working(self.folder / "job.yaml", context().log)


def resident_bytes() -> int:
    """Return what this process has in memory."""
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) * 1024


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    """Return a job over much more than may be in memory."""
    (tmp_path / "in.jsonl").write_text(LINE * LINES)
    with MockCluster() as cluster:
        job = {
            "job": "lines",
            "state": str(tmp_path / "state.db"),
            "source": {"plugin": "files", "path": str(tmp_path / "in.jsonl")},
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": cluster.bootstrap_servers,
                "topic": "slow",
                "format": "json",
                "reconnect.backoff.max.ms": 100,
            },
            "runtime": {
                "outstanding_bytes_max": WINDOW_BYTES,
                "commit_max_bytes": WINDOW_BYTES,
                "tick_min_ms": 5,
            },
        }
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        yield Slow(cluster, tmp_path)


def test_a_broker_that_is_gone_stops_the_reading(slow: Slow) -> None:
    """K06: the worker reads its bound and waits; when the broker is back, the rest follows."""
    before = resident_bytes()
    with slow.running():
        until(lambda: slow.delivered() > 0, "nothing was delivered")
        slow.cluster.down()
        seen = [-1, -1, slow.delivered()]
        until(lambda: _settled(seen, slow.delivered()), "it never stood still")
        standing = slow.delivered()
        growth = resident_bytes() - before
        slow.cluster.up()
        until(lambda: slow.delivered() > standing, "nothing followed")

    assert standing < LINES
    assert growth < GROWTH_BYTES_MAX


def test_a_slow_broker_is_not_outrun(slow: Slow) -> None:
    """K06: what is read keeps to the broker's pace, also if the source has more."""
    slow.cluster.delay(300)
    before = resident_bytes()
    growth = 0

    def has(lines: int) -> bool:
        nonlocal growth
        growth = max(growth, resident_bytes() - before)
        return slow.delivered() >= lines

    with slow.running():
        until(lambda: has(1), "nothing was delivered")
        until(lambda: has(5 * WINDOW_LINES), "it stands still")
        reached = slow.delivered()
        slow.cluster.delay(0)

    assert reached < LINES
    assert growth < GROWTH_BYTES_MAX


def _settled(seen: list[int], now: int) -> bool:
    """Say whether the last looks all saw the same."""
    seen.append(now)
    return len(set(seen[-20:])) == 1 and len(seen) > 20
