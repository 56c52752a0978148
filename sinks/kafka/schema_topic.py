"""The schema store `topic`: a compacted topic, keyed by subject and schema id."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from headrace.plugins import Context, Published, RecordSchema, RetriableError, SchemaStore, option
from headrace.sinks.kafka.clients import new_producer
from headrace.sinks.kafka.config import CLIENT_KEYS, PROMISES, KafkaConfig
from headrace.sinks.kafka.failures import code_of
from headrace.sinks.kafka.reading import messages, partitions

_FLUSH_SECONDS: Final = 10


class SchemaTopicError(RetriableError):
    """The topic for schemas did not accept one."""

    code = "schema_topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaTopicConfig:
    """Options of the schema store `topic`, with the prefix `schema.store.`."""

    bootstrap_servers: str = option(
        "The brokers: host:port, separated by commas.", name="bootstrap.servers"
    )
    topic: str = option("The topic; it should be compacted.")
    sasl_password: str | None = option(
        "Password for SASL.", name="sasl.password", default=None, secret=True
    )
    librdkafka: Mapping[str, str] = option("As in the sink.", keys_allowed=CLIENT_KEYS)


class TopicSchemaStore(SchemaStore):
    """Writes one message per schema: the key `subject/schema id`, the value its text."""

    config_class = SchemaTopicConfig
    config: SchemaTopicConfig
    numbered = False

    def __init__(self, config: SchemaTopicConfig, context: Context) -> None:
        """Connect in the background, except for reading only.

        Raises:
            ConfigError: librdkafka rejects a value.

        """
        super().__init__(config, context)
        secret = {} if config.sasl_password is None else {"sasl.password": config.sasl_password}
        options = {
            **config.librdkafka,
            **secret,
            **PROMISES,
            "bootstrap.servers": config.bootstrap_servers,
            "delivery.timeout.ms": _FLUSH_SECONDS * 1000,
            "log_level": 2,
        }
        # A reader may have no right to write.
        self._producer = None if context.read_only else new_producer(options, place=config.topic)

    def publish(self, subject: str, text: str, schema: RecordSchema) -> Published:
        """Produce the message and wait until it is acknowledged."""
        outcome: list[KafkaError | None] = []
        assert self._producer is not None  # noqa: S101 (a read-only process publishes nothing)

        def arrived(error: KafkaError | None, message: Message) -> None:
            del message
            outcome.append(error)

        key = f"{subject}/{schema.schema_id.hex()}"
        headers: list[tuple[str, str | bytes | None]] = [("schemaId", schema.schema_id)]
        try:
            self._producer.produce(
                self.config.topic, text.encode(), key.encode(), on_delivery=arrived, headers=headers
            )
            self._producer.flush(2 * _FLUSH_SECONDS)
        except (BufferError, KafkaException) as error:
            raise SchemaTopicError(str(error), place=self.config.topic) from error
        failed = outcome[0] if outcome else None
        if not outcome or failed is not None:
            said = "no answer" if failed is None else code_of(failed)
            raise SchemaTopicError(said, place=self.config.topic)
        return Published()

    def find(self, schema_id: bytes, number: Published) -> Mapping[str, str]:
        """Read the topic, and return the last schema of each subject."""
        del number
        config = KafkaConfig(
            bootstrap_servers=self.config.bootstrap_servers,
            topic=self.config.topic,
            sasl_password=self.config.sasl_password,
            librdkafka=self.config.librdkafka,
        )
        found: dict[str, str] = {}
        for part in partitions(config, [config.topic]):
            for stored in chain.from_iterable(messages(config, part)):
                subject, _, name = (stored.key or b"").decode(errors="replace").rpartition("/")
                if name == schema_id.hex() and stored.value is not None:
                    found[subject] = stored.value.decode(errors="replace")
        return found
