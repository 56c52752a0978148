"""The limits of topics: a record that a topic rejects is found before its transaction."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import cramjam
import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # Its stubs are incomplete.

from headrace.plugins import Clock, Headers
from headrace.sinks.kafka.config import MESSAGE_BYTES_MAX, KafkaConfig

SETTING: Final = "max.message.bytes"
CLEANUP: Final = "cleanup.policy"
ASK_SECONDS_MAX: Final = 5.0
KNOWN_MS: Final = 60_000  # Then it is queried again;
REFUSING_MS: Final = 1_000  # earlier before a record is rejected: the limit may have been raised.
_BATCH_BYTES: Final = 61  # A batch's own fields, in Kafka's message format 2.
_RECORD_BYTES: Final = 3  # Its attributes, and zero deltas of time and offset.
_GZIP_LEVEL_MAX: Final = 9  # librdkafka treats higher ones as this.


# The codecs of librdkafka, with a level or its default.
_COMPRESSORS: Final[Mapping[str, Callable[[bytes, int | None], cramjam.Buffer]]] = {
    "gzip": lambda content, level: cramjam.gzip.compress(
        content, level if level is None else min(level, _GZIP_LEVEL_MAX)
    ),
    "lz4": lambda content, level: cramjam.lz4.compress(content, level or 0),
    "snappy": lambda content, _level: cramjam.snappy.compress_raw(content),
    "zstd": cramjam.zstd.compress,
}
_DEFAULT_LEVEL: Final = -1
_MARGIN: Final = 1.25  # Another implementation of a codec may be better by this factor.


class _Limits(msgspec.Struct, frozen=True):
    """The configuration of a topic."""

    bytes_max: int | None = None
    """Of a batch; None where the brokers do not say."""
    is_compacted: bool = False


_UNKNOWN: Final = _Limits()


class TopicBounds:
    """The limits of topics for records. For one thread.

    All writers of a sink share it. If the brokers do not report a topic's `max.message.bytes`, it
    remembers for a while the smallest record that they rejected.
    """

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        """Query nothing yet."""
        self._config = config
        self._clock = clock
        self._sent_max = int(config.librdkafka.get("message.max.bytes", MESSAGE_BYTES_MAX))
        self._found: dict[str, tuple[int, _Limits]] = {}  # The query time, and the result.
        self._refused: dict[str, tuple[int, int]] = {}  # Time of a rejection, and smallest size.
        self._admin: AdminClient | None = None

    def least_size(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """Return the smallest size in bytes of a batch with only this record, for brokers.

        With compression, the record is compressed here to measure it; 0 if that is impossible.
        """
        given = self._config.librdkafka
        kind = str(given.get("compression.type", given.get("compression.codec", "none")))
        if kind == "none":
            return size_of(key, value, headers)
        compress = _COMPRESSORS.get(kind)
        if compress is None:
            return 0
        level = int(given.get("compression.level", _DEFAULT_LEVEL))
        wanted = None if level == _DEFAULT_LEVEL else level
        content = [key, value, *(part for name, each in headers for part in (name.encode(), each))]
        return int(len(compress(b"".join(part or b"" for part in content), wanted)) / _MARGIN)

    def narrow(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Return the limits of those of *topics* with a lower one than the client's.

        A topic whose limit the brokers do not report is left out.
        """
        found = ((topic, self._bound(topic, KNOWN_MS)) for topic in topics)
        return {topic: bound for topic, bound in found if bound is not None}

    def is_beyond(self, topic: str, size: int) -> bool:
        """Return whether *topic* rejects records of *size* bytes."""
        known = self._bound(topic, KNOWN_MS)
        if known is None or size <= known:
            return False
        again = self._bound(topic, REFUSING_MS)
        return again is not None and size > again

    def compacted(self, topics: Iterable[str]) -> frozenset[str]:
        """Return those of *topics* that reject records without a key, because they are compacted.

        A topic whose configuration the brokers do not report is not among them.
        """
        return frozenset(topic for topic in topics if self._limits(topic, KNOWN_MS).is_compacted)

    def needs_key(self, topic: str) -> bool:
        """Return whether *topic* now rejects records without a key, by its configuration."""
        return bool(self.compacted([topic])) and self._limits(topic, REFUSING_MS).is_compacted

    def refuse(self, topic: str, least: int) -> None:
        """Note that brokers rejected a batch of one record with size *least*, of `least_size`."""
        if least:
            known = self.refused([topic]).get(topic, least)
            self._refused[topic] = self._clock.monotonic_ms(), min(known, least)

    def refused(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Return the smallest recently rejected size of each topic that has one, by `least_size`.

        It is not a limit: smaller records may be too large as well. After a while it is dropped, as
        the limit may have been raised. A topic whose limit is known is left out.
        """
        if not self._refused:
            return {}
        since_ms = self._clock.monotonic_ms() - KNOWN_MS
        found = ((topic, *self._refused.get(topic, (since_ms, 0))) for topic in topics)
        return {
            topic: least
            for topic, noted_ms, least in found
            if noted_ms > since_ms and self._found.get(topic, (0, _UNKNOWN))[1].bytes_max is None
        }

    def close(self) -> None:
        """Close the connections."""
        self._admin = None

    def _bound(self, topic: str, known_ms: int) -> int | None:
        bound = self._limits(topic, known_ms).bytes_max
        return bound if bound is not None and bound < self._sent_max else None

    def _limits(self, topic: str, known_ms: int) -> _Limits:
        now_ms = self._clock.monotonic_ms()
        asked_ms, limits = self._found.get(topic, (now_ms - known_ms - 1, _UNKNOWN))
        if now_ms - asked_ms > known_ms:
            limits = self._asked(topic)
            self._found[topic] = now_ms, limits
        return limits

    def _asked(self, topic: str) -> _Limits:
        if self._admin is None:
            self._admin = AdminClient(self._config.admin_config())
        seconds = min(ASK_SECONDS_MAX, self._config.connect_timeout_ms / 1000)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            asked: dict[Any, Any] = self._admin.describe_configs(  # Any: its stubs are untyped.
                [resource], request_timeout=seconds
            )
            found = asked[resource].result(seconds)
            policies = found[CLEANUP].value.split(",")
            return _Limits(int(found[SETTING].value), "compact" in policies)
        except (KafkaException, KeyError, TimeoutError, ValueError):
            return _UNKNOWN  # For example, this user may not query it.


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return the size in bytes of a batch with only this record, without compression."""
    size = _RECORD_BYTES + _field(key) + _field(value) + _varint(len(headers))
    for name, content in headers:
        size += _field(name.encode()) + _field(content)
    return _BATCH_BYTES + _varint(size) + size


def _field(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Return the length of *number* as a varint: seven bits per byte, and one for the sign."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
