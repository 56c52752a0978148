"""The Kafka sink obeys the contract."""

import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
import structlog
from structlog.testing import LogCapture

from headrace.connector.serde import Encoder
from headrace.plugins import Batch, CheckResult, EncodedRecords, hosts, parse_config
from headrace.plugins.testing.sink_suite import Pair, SinkDriver, SinkSuite
from headrace.sinks.kafka import KafkaConfig, KafkaSink, topics
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.failures import EgressError
from helpers.jobs.deliveries import consume, context

MESSAGE_BYTES_MAX = 50_000


class KafkaDriver(SinkDriver):
    """Writes to a topic of its own in the embedded broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Choose a topic."""
        options = {
            "bootstrap.servers": bootstrap_servers,
            "topic": f"suite-{uuid.uuid4()}",
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "connect.timeout.ms": 3_000,
        }
        self._config = parse_config(KafkaConfig, options)

    def sink(self) -> KafkaSink:
        """Return a new sink for the same topic."""
        return KafkaSink(self._config, context())

    def written(self) -> Sequence[Pair]:
        """Return what a consumer gets."""
        found = consume(self._config.bootstrap_servers, self._config.topic)
        values = [(message.key(), message.value()) for message in found]
        return [(key, value) for key, value in values if value is not None]

    def encode(self, batch: Batch) -> EncodedRecords:
        """Encode as the framework does."""
        return Encoder(self.sink().encoding()).encode(batch, token=1)

    def oversize(self) -> bytes:
        """Return more than `message.max.bytes`."""
        return bytes(MESSAGE_BYTES_MAX + 1)


class TestKafkaSink(SinkSuite):
    """The suite, against the embedded broker."""

    @pytest.fixture
    def driver(self, broker: EmbeddedBroker) -> KafkaDriver:
        """Return a driver with an empty topic."""
        return KafkaDriver(broker.bootstrap_servers)


def test_brokers_where_nothing_may_go(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that a name leads to is judged by its address when a sink connects."""
    driver = KafkaDriver(broker.bootstrap_servers)
    driver.sink().open().close()
    monkeypatch.setattr(hosts, "_METADATA", ("127.0.0.1",))  # As if the broker were that.

    with pytest.raises(
        EgressError, match=r"stands for 127\.0\.0\.1, which is an address of the link"
    ):
        driver.sink().open()
    (finding,) = driver.sink().check()
    assert ("connection", CheckResult.FAILED) == (finding.check, finding.result)


def test_brokers_that_the_cluster_tells_of(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is judged are all brokers of the cluster, not the one that was named."""
    judged: list[str] = []
    monkeypatch.setattr(topics, "check_hosts", judged.extend)
    KafkaDriver(broker.bootstrap_servers).sink().open().close()

    assert ["127.0.0.1"] == judged


@pytest.mark.parametrize(("reason", "times"), [("no compiler", 1), ("", 0)])
def test_what_makes_producing_slower_is_logged_once(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, reason: str, times: int
) -> None:
    """However many writers a sink opens."""
    monkeypatch.setattr("headrace.sinks.kafka.sink.why_not_direct", lambda: reason)
    given = {"bootstrap.servers": broker.bootstrap_servers, "topic": "slower"}
    capture = LogCapture()
    log = structlog.wrap_logger(None, processors=[capture])
    sink = KafkaSink(parse_config(KafkaConfig, given), replace(context(), log=log))

    for _ in range(2):
        sink.open().close()

    expected = {"event": "kafka_client_slower", "reason": reason, "log_level": "info"}
    assert [expected] * times == capture.entries
