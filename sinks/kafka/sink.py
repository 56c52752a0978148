"""The Kafka sink, as the framework uses it."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from confluent_kafka import KafkaException

from headrace.plugins import (
    CheckResult,
    ConfigError,
    Encoding,
    Finding,
    Problem,
    SignalChannel,
    Signals,
    Sink,
    Stored,
)
from headrace.plugins.diagnosis import Check, Diagnosis, Examined
from headrace.sinks.kafka.bounds import TopicBounds
from headrace.sinks.kafka.clients import why_not_direct
from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.failures import EgressError, check_hosts
from headrace.sinks.kafka.topics import Topics
from headrace.sinks.kafka.transactions import KafkaTransactions
from headrace.sinks.kafka.watch import TopicWatch
from headrace.sinks.kafka.writer import KafkaWriter


class KafkaSink(Sink, Diagnosis, SignalChannel):
    """`kafka://host:port?topic=name`: one message per record, keyed by the partition key."""

    schemes = ("kafka",)
    config_class = KafkaConfig
    config: KafkaConfig
    heeds_topics = True
    _reported = False

    def encoding(self) -> Encoding:
        """Return the encoding of the options."""
        return self.config.encoding()

    def topic_of(self, table: str) -> str:
        """Return the topic of a table."""
        return Topics(self.config, self.context.clock, "").of(table)

    def parts(self, tables: Sequence[str], suffix: str = "") -> Sequence[str]:
        """Return the partitions of the topics of *tables*."""
        from headrace.sinks.kafka.reading import partitions  # noqa: PLC0415 (seldom needed)

        topics = list(dict.fromkeys(self.topic_of(table) + suffix for table in tables))
        return partitions(self.config, topics)

    def read_back(self, part: str) -> Iterator[Sequence[Stored]]:
        """Read a partition from its beginning to its end, without a group."""
        from headrace.sinks.kafka.reading import messages  # noqa: PLC0415 (seldom needed)

        return messages(self.config, part)

    def signals(self) -> Signals | None:
        """Return the consumer of `signal.topic`. Raises ConfigError, EgressError."""
        from headrace.sinks.kafka.signals import KafkaSignals  # noqa: PLC0415 (seldom needed)

        topic = self.config.signal_topic
        if topic is None:
            return None
        check_hosts(self.config.hosts)
        return KafkaSignals(self.config, topic, self.context)

    def check(self) -> Sequence[Finding]:
        """Check the brokers: their reachability, our login, the topics, rights and sizes."""
        return self._findings((), "")

    def checks(self, about: Examined) -> Sequence[Check]:
        """Return these checks, also for topics of the job's tables, and the client's versions."""
        from headrace.sinks.kafka.diagnosis.cluster import library_findings  # noqa: PLC0415 (seldom needed)

        topics = [self.topic_of(table) for table in about.tables]
        return [
            Check("Kafka", "client", library_findings),
            Check("Kafka", "brokers", partial(self._findings, topics, self.context.job)),
        ]

    def _findings(self, topics: Sequence[str], job: str) -> Sequence[Finding]:
        from headrace.sinks.kafka.diagnosis.cluster import ClusterCheck  # noqa: PLC0415 (seldom needed)

        try:
            check_hosts(self.config.hosts)
            return ClusterCheck(self.config, job).findings(topics)
        except EgressError as error:
            return [Finding("connection", CheckResult.FAILED, error.message, error.hint)]
        except KafkaException as error:
            return [Finding("options", CheckResult.FAILED, error.args[0].str())]

    def open(self) -> KafkaWriter:
        """Return a writer after its broker has answered and its topic exists.

        Raises:
            ConfigError: librdkafka rejects a value.
            EgressError: a broker has an address that headrace must not contact.
            BrokerUnreachableError: no broker answered within `connect.timeout.ms`.
            TopicMissingError: the cluster does not have the topic and does not create it.

        """
        check_hosts(self.config.hosts)  # Before librdkafka connects, which it does at once.
        self._report_client()
        writer = KafkaWriter(self.config, self.context, self._watch)
        try:
            writer.connect()
        except BaseException:
            writer.close()
            raise
        return writer

    def home(self) -> str:
        """Return "": positions are in a topic, which any machine can read."""
        return ""

    @property
    def is_transactional(self) -> bool:
        """Whether `exactly.once` is set."""
        return self.config.exactly_once

    def open_split(self, split: str) -> KafkaTransactions:
        """Return the writer of *split*; its first `begin` checks the requirements.

        Raises:
            ConfigError: librdkafka rejects a value.
            EgressError: a broker has an address that headrace must not contact.

        """
        check_hosts(self.config.hosts)
        self._report_client()
        return KafkaTransactions(self.config, self.context, split, self._watch, self._bounds)

    def _report_client(self) -> None:
        """Log, once, that producing takes more CPU than necessary."""
        reason = why_not_direct()
        if reason and not self._reported:
            self._reported = True
            self.context.log.info("kafka_client_slower", reason=reason)

    @cached_property
    def _watch(self) -> TopicWatch:
        """The watch of topics that all writers of this sink share."""
        return TopicWatch(self.config, self.context)

    @cached_property
    def _bounds(self) -> TopicBounds:
        """The limits of topics that the writers of all splits share."""
        return TopicBounds(self.config, self.context.clock)

    @classmethod
    def config_of_uri(cls, host: str, path: str) -> dict[str, str]:
        """Convert `h1:1,h2:2` of `kafka://h1:1,h2:2?topic=x` to `bootstrap.servers`.

        Raises:
            ConfigError: the URI has a path, which Kafka does not use.

        """
        if path.strip("/"):
            hint = f"name the topic as ?topic={path.strip('/')}"
            raise ConfigError([Problem("uri", f"kafka:// takes no path, found {path!r}", hint)])
        return {"bootstrap.servers": host}
