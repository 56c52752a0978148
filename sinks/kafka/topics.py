"""The topic of a table's records: its name, whether it exists, and its creation if allowed."""

from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs are incomplete.

from headrace.plugins import Clock, EncodedRecords
from headrace.sinks.kafka.clients import Client
from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.failures import (
    REFUSALS,
    UNANSWERED,
    BrokerUnreachableError,
    TopicMissingError,
    check_hosts,
    hint_of,
)
from headrace.sinks.kafka.watch import TopicWatch, tool

_POLL_MS: Final = 100
# Codes for a topic that is being created.
_NOT_YET: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
Heard = Callable[[], KafkaError | None]
_CREATION_PREFIX: Final = "topic.creation.default."
_MAP_PREFIX: Final = "topic.map."


class Topics:
    """The topics of one writer; called on its thread."""

    def __init__(
        self, config: KafkaConfig, clock: Clock, place: str, watch: TopicWatch | None = None
    ) -> None:
        """Query nothing yet; errors have *place*; *watch* gets the topics in use."""
        self._config = config
        self._watch = watch
        self._clock = clock
        self._place = place
        self._ready: set[str] = set()
        self._names: dict[str, str] = {}

    @property
    def fixed(self) -> str | None:
        """The topic of all tables, if they share one."""
        config = self._config
        return None if "{" in config.topic or config.topic_map else config.topic

    def of(self, table: str) -> str:
        """Return the topic of `keyspace.table`, or of a table with a plain name."""
        name = self._names.get(table)
        if name is None:
            keyspace, _, rest = table.rpartition(".")
            name = self._config.topic_map.get(f"{_MAP_PREFIX}{table}")
            if name is None:
                name = self._config.topic.replace("{keyspace}", keyspace).replace("{table}", rest)
            self._names[table] = name
        return name

    def find_broker(self, client: Client, heard: Heard) -> None:
        """Wait until a broker answers, and check the addresses of all brokers that it reports.

        Raises:
            BrokerUnreachableError: no broker answers.
            EgressError: a broker has an address that headrace must not contact.

        """
        try:
            cluster = client.cluster(None, self._config.connect_timeout_ms)
        except KafkaException:
            self._fail_unreachable(heard())
        check_hosts(cluster.hosts)

    def wanted(self, encoded: EncodedRecords) -> Iterable[str]:
        """Return the topics of these records, except a fixed one, which is checked at the start."""
        if encoded.topics is not None:
            return dict.fromkeys(encoded.topics)
        if self.fixed is not None:
            return ()
        return [self.of(table) for table in dict.fromkeys(encoded.tables)]

    def make_ready(self, topics: Iterable[str], client: Client, heard: Heard) -> None:
        """Wait until each of *topics* can be written, up to `connect.timeout.ms` for each.

        *heard* polls the client and returns the last error of its connections.

        Raises:
            BrokerUnreachableError: no broker answered.
            EgressError: a broker has an address that headrace must not contact.
            TopicMissingError: a topic is missing and is not created.

        """
        for topic in topics:
            if topic not in self._ready:
                self._await(topic, client, heard)
                self._ready.add(topic)
                if self._watch is not None:
                    self._watch.add(topic)

    def _await(self, topic: str, client: Client, heard: Heard) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._config.connect_timeout_ms
        asked, has_leader = False, True
        while (left_ms := deadline_ms - self._clock.monotonic_ms()) > 0:
            try:
                found = client.cluster(topic, left_ms)
            except KafkaException:
                self._fail_unreachable(heard())
            check_hosts(found.hosts)
            error = found.error
            if error is None:
                return
            if error.code() not in _NOT_YET:
                raise TopicMissingError(
                    f"topic {topic} cannot be used: {error.str()}",
                    place=self._place,
                    hint="correct its name, or give this user the right to write to it",
                )
            has_leader = error.code() != KafkaError.LEADER_NOT_AVAILABLE
            if has_leader and self._config.topic_creation_enable and not asked:
                self._create(topic)
                asked = True
            client.poll(_POLL_MS)
        if not has_leader:
            raise BrokerUnreachableError(
                f"topic {topic} is there, but had no leader for "
                f"{self._config.connect_timeout_ms} ms",
                place=self._place,
                hint=f"start the brokers that have its replicas (`{tool(self._config)} --describe "
                f"--topic {topic}` names them), then start again. Nothing is lost: what was not "
                "delivered is read again",
            )
        raise TopicMissingError(
            f"no topic {topic} within {self._config.connect_timeout_ms} ms",
            place=self._place,
            hint=f"create it (`{tool(self._config)} --create --topic {topic}`), or set "
            "topic.creation.enable to true, then start again. Nothing is lost: what was not "
            "delivered is read again",
        )

    def _fail_unreachable(self, last: KafkaError | None) -> NoReturn:
        said = f": {last.str()}" if last else ""
        raise BrokerUnreachableError(
            f"no broker answered within {self._config.connect_timeout_ms} ms{said}",
            place=self._place,
            hint=hint_of(last),
        )

    def _create(self, topic: str) -> None:
        config = self._config
        settings = {
            key.removeprefix(_CREATION_PREFIX): value
            for key, value in config.topic_creation_config.items()
        }
        wanted = NewTopic(
            topic,
            num_partitions=config.topic_creation_partitions,
            replication_factor=config.errors_topic_replication
            if topic == config.errors_topic
            else config.topic_creation_replication,
            config=settings,
        )
        seconds = config.connect_timeout_ms / 1000
        admin = AdminClient(config.admin_config())  # Kept in a variable: its futures need it.
        try:
            admin.create_topics([wanted], request_timeout=seconds)[topic].result(seconds)
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if error.code() in UNANSWERED:
                raise self._late(topic) from raised
            hint = "correct topic.creation.default.*"
            if error.code() in REFUSALS:
                hint = "give this user the right to create it, or have it created"
            raise TopicMissingError(
                f"topic {topic} cannot be made: {error.str()}", place=self._place, hint=hint
            ) from raised
        except TimeoutError as late:
            raise self._late(topic) from late

    def _late(self, topic: str) -> TopicMissingError:
        seconds = self._config.connect_timeout_ms / 1000
        return TopicMissingError(
            f"topic {topic} was not made within {seconds:g} s",
            place=self._place,
            hint="is its controller busy? `headrace embedded-broker` cannot be asked to: it makes "
            "a topic on first use, so leave topic.creation.enable out",
        )
