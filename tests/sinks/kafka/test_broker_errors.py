"""What brokers answer: too large, not leader, forbidden, out of order, slow, down."""

from collections.abc import Collection, Iterator, Sequence

import pytest
from confluent_kafka import KafkaError

from headrace.plugins import Disposition, Failure, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink, KafkaWriter
from helpers.jobs.deliveries import Results, consume, context, delivery_of, drained
from helpers.servers.mock_cluster import MockCluster

pytestmark = pytest.mark.usefixtures("way")

DELIVERY = delivery_of((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))


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
def test_what_the_client_repeats_itself_is_not_told(
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
