"""Detects that a topic was deleted, or deleted and created again, while records go to it.

The cluster gives each topic an id. Producers do not check it: records continue into the new topic,
and no error shows that the old one was lost with its content.
"""

from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import AdminClient, TopicDescription  # type: ignore[attr-defined]  # Its stubs are incomplete.

from headrace.plugins import Context
from headrace.sinks.kafka.config import KafkaConfig

if TYPE_CHECKING:
    from concurrent.futures import Future

LOOK_MS: Final = 10_000
_ASK_SECONDS: Final = 5.0
_LOST: Final = (
    "What was delivered before is gone with the old topic; what was not delivered is read again. "
    "To deliver the rest again, set the source's position back with SET POSITION"
)


def tool(config: KafkaConfig) -> str:
    """Return the command of Kafka's tool for topics."""
    return f"kafka-topics --bootstrap-server {config.bootstrap_servers}"


def gone_hint(config: KafkaConfig, topic: str) -> str:
    """Return a hint about what was lost with a deleted topic, and how the job continues."""
    created = "start again, and headrace creates it"
    if not config.topic_creation_enable:
        created = f"create it (`{tool(config)} --create --topic {topic}`), then start again"
    return f"{created}. {_LOST}"


class TopicWatch:
    """The topics that one pipeline writes to. Called on its thread; never blocks."""

    def __init__(self, config: KafkaConfig, context: Context) -> None:
        """Query nothing yet."""
        self._config = config
        self._clock = context.clock
        self._log = context.log
        self._ids: dict[str, str] = {}
        self._missing: set[str] = set()
        self._asked: dict[str, Future[TopicDescription]] = {}
        self._next_ms = 0
        self._admin: AdminClient | None = None

    def add(self, topic: str) -> None:
        """Watch *topic*, which exists."""
        if topic not in self._ids:
            self._ids[topic] = ""
            self._next_ms = 0  # Its id is needed before it may change.

    def is_missing(self, topic: str) -> bool:
        """Return whether the brokers did not have the topic at the last query."""
        return topic in self._missing

    def look(self) -> bool:
        """Process answers of the brokers, or query if it is time. Return whether answers came."""
        if self._asked:
            if not all(answer.done() for answer in self._asked.values()):
                return False
            asked, self._asked = self._asked, {}
            for topic, answer in asked.items():
                self._take(topic, answer)
            return True
        now_ms = self._clock.monotonic_ms()
        if self._ids and now_ms >= self._next_ms:
            self._next_ms = now_ms + LOOK_MS
            self._ask()
        return False

    def close(self) -> None:
        """Close the connections."""
        self._asked = {}
        self._admin = None

    def _ask(self) -> None:
        if self._admin is None:
            self._admin = AdminClient(self._config.admin_config())
        self._asked = self._admin.describe_topics(
            TopicCollection(list(self._ids)), request_timeout=_ASK_SECONDS
        )

    def _take(self, topic: str, answer: "Future[TopicDescription]") -> None:
        try:
            found = _text(answer.result().topic_id)
        except KafkaException as raised:  # Sending records reports other errors.
            if raised.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._note_missing(topic)
            return
        self._missing.discard(topic)
        known, self._ids[topic] = self._ids[topic], found
        if known and found and known != found:
            self._log.warning("topic_replaced", topic=topic, was=known, now=found, hint=_LOST)

    def _note_missing(self, topic: str) -> None:
        if topic not in self._missing:
            self._missing.add(topic)
            self._log.warning("topic_missing", topic=topic, hint=gone_hint(self._config, topic))


def _text(topic_id: Uuid) -> str:
    """Return the id as Kafka's tools print it; "" for a broker without ids."""
    text = str(topic_id)
    return text if text.strip("A") else ""
