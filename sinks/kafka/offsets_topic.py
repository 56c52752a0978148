"""The compacted topic of the states of splits, for exactly once, and its reading.

All entries of a split are in one partition, so that its owner reads no others.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Final, NoReturn

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec  # type: ignore[attr-defined]  # Its stubs are incomplete.

from headrace.plugins import Clock
from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.failures import MOVING, REFUSALS, UNANSWERED, OffsetsTopicError
from headrace.sinks.kafka.reading import taken

PARTITIONS: Final = 8
# At the start, a reader must read everything that is not yet compacted.
_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}
_POLL_SECONDS: Final = 0.1
_COMPACT: Final = "compact"


class OffsetsTopic:
    """The entries of one split. Called on the writer's thread."""

    def __init__(self, config: KafkaConfig, clock: Clock, job: str, split: str) -> None:
        """Connect to nothing yet."""
        self.name = config.offsets_topic
        self.place = f"kafka://{config.bootstrap_servers}?topic={self.name}"
        self._config = config
        self._clock = clock
        self._owner = (job, split)
        self.partition = -1
        """The partition of the split's entries; known after `prepare`."""
        self._reading: _Reading | None = None
        self._admin: AdminClient | None = None

    def key(self, name: str) -> bytes:
        """Return the key of the entry *name*, in readable form."""
        return json.dumps([*self._owner, name], separators=(",", ":")).encode()

    def prepare(self, deadline_ms: int) -> bool:
        """Create the topic if missing, and check that it is compacted. Return whether that is done.

        False: not all was answered by *deadline_ms*. Call it again.

        Raises:
            OffsetsTopicError: the topic is missing, or unsuitable for states.

        """
        if self._admin is None:  # Kept: it connects meanwhile.
            made = {**self._config.admin_config(), "allow.auto.create.topics": False}
            self._admin = AdminClient(made)
        while self.partition < 0:
            try:
                self._look(self._admin, deadline_ms)
            except KafkaException as error:
                self._refuse(error.args[0], "")
            except TimeoutError:
                pass
            if self.partition < 0:
                if self._clock.monotonic_ms() >= deadline_ms:
                    return False
                self._admin.poll(_POLL_SECONDS)
        self._admin = None
        return True

    def read(self, deadline_ms: int) -> Mapping[str, bytes] | None:
        """Return the entries committed before the first call; None: not all were read yet.

        It waits for open transactions of other splits in the partition: they may hide our entries.

        Raises:
            OffsetsTopicError: they cannot be read.

        """
        try:
            if self._reading is None:
                self._reading = _Reading(self._config, self, self._end(self._left(deadline_ms)))
            entries = self._reading.go_on(self._clock, deadline_ms)
        except KafkaException as error:
            self.stop_reading()
            if error.args[0].code() in MOVING:  # As with a topic that was made just now.
                return None
            self._refuse(error.args[0], "give this user the right to read and describe it")
            return None
        except TimeoutError:
            return None
        if entries is not None:
            self.stop_reading()
        return entries

    def stop_reading(self) -> None:
        """Forget what was read so far."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.close()

    def _look(self, admin: AdminClient, deadline_ms: int) -> None:
        """Find the partition, or create the topic, which brokers report only a moment later."""
        found = admin.list_topics(self.name, timeout=self._left(deadline_ms)).topics[self.name]
        if found.error is None and found.partitions:
            self._check(admin, self._left(deadline_ms))
            self.partition = zlib.crc32(json.dumps(self._owner).encode()) % len(found.partitions)
        elif found.error is not None and found.error.code() not in MOVING:
            self._create(admin, found.error, self._left(deadline_ms))

    def _left(self, deadline_ms: int) -> float:
        """Return the timeout of a request in seconds."""
        return max(_POLL_SECONDS, (deadline_ms - self._clock.monotonic_ms()) / 1000)

    def _end(self, seconds: float) -> int:
        """Return the current end of the partition, including uncommitted messages."""
        admin = AdminClient(self._config.admin_config())
        place = TopicPartition(self.name, self.partition)
        asked = admin.list_offsets(
            {place: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=seconds,
        )
        return int(asked[place].result(seconds).offset)

    def _create(self, admin: AdminClient, error: KafkaError, seconds: float) -> None:
        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._fail(error.str(), "give this user the right to read, write and describe it")
        wanted = NewTopic(
            self.name,
            num_partitions=PARTITIONS,
            replication_factor=self._config.topic_creation_replication,
            config=_SETTINGS,
        )
        try:
            admin.create_topics([wanted], request_timeout=seconds)[self.name].result(seconds)
        except KafkaException as raised:
            refusal: KafkaError = raised.args[0]
            if refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            hint = "create it, compacted"
            if refusal.code() in REFUSALS:
                hint = "create it, compacted, or give this user the right to"
            self._refuse(refusal, hint, "it cannot be made: ")

    def _check(self, admin: AdminClient, seconds: float) -> None:
        """Raise OffsetsTopicError for a topic that deletes entries; unknown ones are accepted."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name)
        try:
            asked = admin.describe_configs([resource], request_timeout=seconds)
            policy = asked[resource].result(seconds)["cleanup.policy"].value
        except KafkaException as error:
            if error.args[0].code() in REFUSALS:
                return
            raise
        if policy != _COMPACT:  # With deletion, even the last entry of a key expires.
            setting = f"--alter --topic {self.name} --add-config cleanup.policy={_COMPACT}"
            hint = f"set it: kafka-configs --bootstrap-server <broker> {setting}"
            self._fail(f"its cleanup.policy is {policy!r}, so states would be lost", hint)

    def _refuse(self, error: KafkaError, hint: str, what: str = "") -> None:
        """Raise an error of an answer; a missing answer is not a failure."""
        if error.code() not in UNANSWERED:
            self._fail(f"{what}{error.str()}", hint)

    def _fail(self, what: str, hint: str) -> NoReturn:
        raise OffsetsTopicError(f"topic {self.name}: {what}", place=self.place, hint=hint)


class _Reading:
    """One pass over the partition, up to its end at the start of the pass."""

    def __init__(self, config: KafkaConfig, topic: OffsetsTopic, end: int) -> None:
        self._end = end
        self._found: dict[str, bytes] = {}
        self._key = topic.key
        self._prefix = topic.key("")[: -len(b'"]')]
        self._done = not end
        self._consumer = Consumer(
            {
                **config.admin_config(),
                "group.id": f"{config.transactional_id_prefix}-states",  # No consumer joins it.
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                # Not the end: if entries were deleted before compaction, the partition starts
                # later.
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(topic.name, topic.partition, 0)])

    def go_on(self, clock: Clock, deadline_ms: int) -> Mapping[str, bytes] | None:
        """Read until the end, or *deadline_ms*."""
        while not self._done and clock.monotonic_ms() < deadline_ms:
            for message in taken(self._consumer, _POLL_SECONDS):
                self._take(message)
        return self._found if self._done else None

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                return  # No group is joined: librdkafka still looks for its coordinator.
            if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's own)
                raise KafkaException(error)
            self._done |= (message.offset() or 0) >= self._end
            return
        key, value = message.key(), message.value()
        if not isinstance(key, bytes) or not key.startswith(self._prefix):
            return
        name = self._name_in(key)
        if name is None:
            return
        if value is None:
            self._found.pop(name, None)
        else:
            self._found[name] = bytes(value)

    def _name_in(self, key: bytes) -> str | None:
        """Return the name in *key*; None if another program wrote it."""
        try:
            name = json.loads(key)[-1]
        except ValueError:
            return None
        return name if isinstance(name, str) and self._key(name) == key else None
