"""Checks whether this sink could deliver to a cluster. Writes nothing, and creates no topic."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs are incomplete.
    AclOperation,
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ResourceType,
    TopicMetadata,
)

from headrace.plugins import CheckResult, Finding
from headrace.plugins.amounts import count_text
from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.diagnosis.rights import Rights, reason, user_of
from headrace.sinks.kafka.failures import hint_of
from headrace.sinks.kafka.signals import signal_group
from headrace.sinks.kafka.transactions import transactional_id

if TYPE_CHECKING:
    from concurrent.futures import Future


_PASSED, _FAILED, _UNKNOWN = CheckResult.PASSED, CheckResult.FAILED, CheckResult.UNKNOWN

_A_SPLIT: Final = "1-of-8"  # An example: a right to the ids of a job is one by prefix.
_AUTO_CREATE: Final = "auto.create.topics.enable"
SECONDS_MAX: Final = 5.0  # For each request.
_MESSAGE_BYTES: Final = 1_000_000  # The largest message of a producer, unless configured.


class ClusterCheck:
    """One check, on one thread."""

    def __init__(self, config: KafkaConfig, job: str = "") -> None:
        """Connect to nothing yet; with a *job*, its transactional ids and group are checked, too.

        Raises KafkaException if librdkafka rejects a value.
        """
        self._config = config
        self._job = job
        self._heard: list[KafkaError] = []
        self._seconds = min(SECONDS_MAX, config.connect_timeout_ms / 1000)
        # Not a method: that would be a cycle, and the client's threads would wait for the
        # collector.
        options: dict[str, Any] = {**config.admin_config(), "error_cb": self._heard.append}
        self._admin = AdminClient(options)
        self._rights = Rights(self._admin, user_of(options), self._seconds)

    def findings(self, topics: Iterable[str] = ()) -> Sequence[Finding]:
        """Return the findings, up to the first failure that makes further checks impossible.

        It checks the topics that the options name, and *topics*.
        """
        try:
            cluster = self._admin.list_topics(timeout=self._seconds)
        except KafkaException as error:
            self._admin.poll(0)  # Deliver the errors of its connections.
            last = self._why() or error.args[0]
            return [Finding("connection", _FAILED, last.str(), hint_of(last))]
        brokers = len(cluster.brokers)
        found = [
            Finding(
                "connection",
                _PASSED,
                f"{count_text(brokers, 'broker')} of cluster {cluster.cluster_id}",
            )
        ]
        if "SASL" in self._config.librdkafka.get("security.protocol", "").upper():
            found.append(Finding("authentication", _PASSED, "the brokers know this user"))
        for topic in dict.fromkeys((*self._topics(), *topics)):
            found += self._of_topic(topic, cluster)
        if self._job and self._config.exactly_once:
            found += self._of_transactions(cluster)
        if self._job and self._config.signal_topic:
            found += self._of_signals(self._config.signal_topic, cluster)
        return found

    def _of_transactions(self, cluster: ClusterMetadata) -> Iterator[Finding]:
        """Yield the additional rights for exactly-once delivery."""
        topic, prefix = self._config.offsets_topic, self._config.transactional_id_prefix
        if topic in cluster.topics:
            yield self._rights.of_topic(topic, AclOperation.READ, AclOperation.WRITE)
        else:
            yield Finding("topic", _PASSED, f"{topic} is missing, and will be created")
        split = transactional_id(prefix, self._job, _A_SPLIT)
        yield self._rights.of_transactional_id(split, f"{prefix}-{self._job}-")

    def _of_signals(self, topic: str, cluster: ClusterMetadata) -> Iterator[Finding]:
        """Yield whether signals can be read."""
        if topic in cluster.topics:
            yield self._rights.of_topic(topic, AclOperation.READ)
        else:
            hint = "create it, or leave signal.topic out"
            yield Finding("topic", _FAILED, f"topic {topic} of signals does not exist", hint)
        yield self._rights.of_group(signal_group(self._config, self._job))

    def _why(self) -> KafkaError | None:
        """Return the last error; that all brokers are down says less than each one's error."""
        reported = [e for e in self._heard if e.code() != KafkaError._ALL_BROKERS_DOWN]  # noqa: SLF001
        return next(reversed(reported or self._heard), None)

    def _topics(self) -> Sequence[str]:
        config = self._config
        named = [config.topic, *config.topic_map.values(), config.errors_topic or ""]
        return [topic for topic in dict.fromkeys(named) if topic and "{" not in topic]

    def _of_topic(self, topic: str, cluster: ClusterMetadata) -> Iterator[Finding]:
        known = cluster.topics
        if topic not in known:
            yield self._missing(topic, cluster)
            return
        yield Finding("topic", _PASSED, f"{topic} has {len(known[topic].partitions)} partitions")
        yield from partition_findings(topic, known[topic])
        resource = ConfigResource(ResourceType.TOPIC, topic)
        settings = self._admin.describe_configs([resource], request_timeout=self._seconds)[resource]
        yield self._rights.of_topic(topic, AclOperation.WRITE)
        yield self._size(topic, settings)

    def _missing(self, topic: str, cluster: ClusterMetadata) -> Finding:
        if self._config.topic_creation_enable:
            return Finding("topic", _PASSED, f"{topic} is missing, and will be created")
        resource = ConfigResource(ResourceType.BROKER, str(next(iter(cluster.brokers), 0)))
        asked = self._admin.describe_configs([resource], request_timeout=self._seconds)[resource]
        try:
            return missing_finding(topic, asked.result(self._seconds)[_AUTO_CREATE].value)
        except (KafkaException, TimeoutError, KeyError):
            return missing_finding(topic, None)

    def _size(self, topic: str, asked: "Future[Any]") -> Finding:
        try:
            takes = int(asked.result(self._seconds)["max.message.bytes"].value)
        except (KafkaException, TimeoutError) as error:
            return Finding("size", _UNKNOWN, f"{topic}: {reason(error)}")
        sends = int(self._config.librdkafka.get("message.max.bytes", _MESSAGE_BYTES))
        said = f"{topic} takes {takes} bytes, a message has at most {sends}"
        if sends <= takes:
            return Finding("size", _PASSED, said)
        hint = "lower message.max.bytes, or raise the topic's max.message.bytes"
        return Finding("size", _FAILED, said, hint)


def missing_finding(topic: str, is_created: str | None) -> Finding:
    """Return the finding about a missing topic; *is_created* is the brokers' setting, if known."""
    hint = "create it, or set topic.creation.enable to true"
    if is_created == "true":
        return Finding("topic", _PASSED, f"{topic} is missing; the brokers create it on first use")
    if is_created is None:
        hint += ", unless the brokers create topics on first use"
    result = CheckResult.WARNED if is_created is None else _FAILED
    return Finding("topic", result, f"topic {topic} does not exist", hint)


def partition_findings(topic: str, found: TopicMetadata) -> Iterator[Finding]:
    """Yield the partitions without a leader, or with replicas out of sync."""
    parts = found.partitions.values()
    if lost := [each.id for each in parts if each.leader < 0]:
        said = f"{topic}: no broker leads partitions {', '.join(map(str, sorted(lost)))}"
        yield Finding("partitions", _FAILED, said, "start the brokers that have them")
    if short := [
        each.id for each in parts if 0 <= each.leader and len(each.isrs) < len(each.replicas)
    ]:
        said = (
            f"{topic}: replicas of partitions {', '.join(map(str, sorted(short)))} are not in sync"
        )
        hint = "see which brokers are down or slow: with too few in sync nothing is acknowledged"
        yield Finding("partitions", CheckResult.WARNED, said, hint)


def library_findings() -> Iterator[Finding]:
    """Yield the versions of the client's libraries."""
    client, library = confluent_kafka.__version__, confluent_kafka.libversion()[0]
    said = f"confluent-kafka {client}, librdkafka {library}"
    yield Finding("client", _PASSED, said)
