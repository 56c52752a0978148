"""How large a batch each topic takes: what is larger is found before it is in a transaction."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import cramjam
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs forget some.
    AdminClient,
    ConfigResource,
)

from headrace.plugins import Clock, Headers
from headrace.sinks.kafka.config import MESSAGE_BYTES_MAX, KafkaConfig

SETTING: Final = "max.message.bytes"
ASK_SECONDS_MAX: Final = 5.0
KNOWN_MS: Final = 60_000  # Then it is asked for again,
REFUSING_MS: Final = 1_000  # and earlier before a record is refused: it may have been raised.
_BATCH_BYTES: Final = 61  # Of a batch's own fields, in Kafka's message format 2.
_RECORD_BYTES: Final = 3  # Its attributes, and no difference of time and offset to the first.
# What librdkafka compresses with, at its default level.
_COMPRESSORS: Final[Mapping[str, Callable[[bytes], cramjam.Buffer]]] = {
    "gzip": cramjam.gzip.compress,
    "lz4": cramjam.lz4.compress_block,
    "snappy": cramjam.snappy.compress_raw,
    "zstd": cramjam.zstd.compress,
}
_MARGIN: Final = 1.25  # By so much another implementation of a codec may be better than ours.


class TopicBounds:
    """The bounds of topics that take less than the client sends. For one thread."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        """Ask nothing yet."""
        self._config = config
        self._clock = clock
        self._sent_max = int(config.librdkafka.get("message.max.bytes", MESSAGE_BYTES_MAX))
        self._found: dict[str, tuple[int, int | None]] = {}  # When it was asked for, and what.
        self._admin: AdminClient | None = None

    def least_size(self, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """Return what a batch of this record alone has for brokers at the least, in bytes.

        With compression that is judged by compressing it here; 0 where that cannot be told.
        """
        given = self._config.librdkafka
        kind = str(given.get("compression.type", given.get("compression.codec", "none")))
        if kind == "none":
            return size_of(key, value, headers)
        compress = _COMPRESSORS.get(kind)
        if compress is None or "compression.level" in given:
            return 0
        content = [key, value, *(part for name, each in headers for part in (name.encode(), each))]
        return int(len(compress(b"".join(part or b"" for part in content))) / _MARGIN)

    def narrow(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Return the bounds of those of *topics* that take less than the client would send.

        Where the brokers do not tell, there is none.
        """
        found = ((topic, self._bound(topic, KNOWN_MS)) for topic in topics)
        return {topic: bound for topic, bound in found if bound is not None}

    def is_beyond(self, topic: str, size: int) -> bool:
        """Say whether *topic* takes no record of *size* bytes."""
        known = self._bound(topic, KNOWN_MS)
        if known is None or size <= known:
            return False
        again = self._bound(topic, REFUSING_MS)
        return again is not None and size > again

    def close(self) -> None:
        """Give back the connections."""
        self._admin = None

    def _bound(self, topic: str, known_ms: int) -> int | None:
        now_ms = self._clock.monotonic_ms()
        asked_ms, bound = self._found.get(topic, (now_ms - known_ms - 1, None))
        if now_ms - asked_ms > known_ms:
            bound = self._asked(topic)
            self._found[topic] = now_ms, bound
        return bound if bound is not None and bound < self._sent_max else None

    def _asked(self, topic: str) -> int | None:
        if self._admin is None:
            self._admin = AdminClient(self._config.admin_config())
        seconds = min(ASK_SECONDS_MAX, self._config.connect_timeout_ms / 1000)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            asked: dict[Any, Any] = self._admin.describe_configs(  # Any: its stubs say nothing.
                [resource], request_timeout=seconds
            )
            return int(asked[resource].result(seconds)[SETTING].value)
        except (KafkaException, KeyError, TimeoutError, ValueError):
            return None  # This user may not ask, say.


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return how many bytes a batch of this record alone has without compression."""
    size = _RECORD_BYTES + _field(key) + _field(value) + _varint(len(headers))
    for name, content in headers:
        size += _field(name.encode()) + _field(content)
    return _BATCH_BYTES + _varint(size) + size


def _field(content: bytes | None) -> int:
    return 1 if content is None else _varint(len(content)) + len(content)


def _varint(number: int) -> int:
    """Return how many bytes *number* has in the format: seven bits each, and one for the sign."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
