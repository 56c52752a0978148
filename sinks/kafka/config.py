"""Options of the Kafka sink, and the options of librdkafka.

librdkafka's keys are checked by an allow-list: some others load libraries, run programs, or disable
the sink's guarantees (`acks`, idempotence, the partitioner).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.plugins import ConfigError, Encoding, Problem, SinkOptions, option
from headrace.plugins.discovery import names
from headrace.plugins.hosts import host_problem
from headrace.plugins.records.codecs import header_problems

_KNOWN: Final = (
    "security.protocol",
    *("sasl.mechanism", "sasl.mechanisms", "sasl.username"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.crl.location"),
    *("ssl.key.location", "ssl.keystore.location"),
    *("ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list"),
    *("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
    *("client.id", "client.rack", "client.dns.lookup"),
    *("compression.type", "compression.codec", "compression.level"),
    *("linger.ms", "batch.size", "batch.num.messages", "sticky.partitioning.linger.ms"),
    *("queue.buffering.max.messages", "queue.buffering.max.kbytes", "queue.buffering.max.ms"),
    *("message.max.bytes", "message.copy.max.bytes"),
    *("message.timeout.ms", "delivery.timeout.ms"),
    *("transaction.timeout.ms", "request.timeout.ms"),
    *("retry.backoff.ms", "retry.backoff.max.ms"),
    *("max.in.flight", "max.in.flight.requests.per.connection"),
    *("socket.timeout.ms", "socket.keepalive.enable", "socket.nagle.disable"),
    *("socket.connection.setup.timeout.ms", "broker.address.ttl", "broker.address.family"),
    *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "connections.max.idle.ms"),
    *("metadata.max.age.ms", "topic.metadata.refresh.interval.ms"),
    "allow.auto.create.topics",
)

CLIENT_KEYS: Final = "|".join(map(re.escape, _KNOWN))
# Guaranteed by the sink with any options.
PROMISES: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",  # As Java producers partition keys.
}
_MESSAGE_BYTES: Final = "message.max.bytes"
MESSAGE_BYTES_MAX: Final = 1_000_000  # The default of librdkafka.
ROOM_BYTES: Final = 4_096  # For the key, headers and Kafka's overhead.
DEFAULTS: Final = {
    "delivery.timeout.ms": "120000",  # Then the framework retries.
    "queue.buffering.max.kbytes": "32768",  # Limits the memory of unacknowledged records.
    "queue.buffering.max.messages": "100000",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "2000",
    "log_level": "2",  # Errors are reported by the error callback, to our log.
}
# Options of connections, common to all clients of librdkafka.
_SHARED: Final = ("bootstrap.", "security.", "sasl.", "ssl.", "enable.ssl.", "client.", "socket.")
_SERVER: Final = re.compile(
    r"(?:[A-Z_]+://)?(?:\[(?P<v6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\s:,/?\[\]]+))(?::(?P<port>\d{1,5}))?"
)
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PORT_MAX: Final = 65535

# Some options of Kafka's clients are fixed here. Configurations of other producers contain them:
# the value that matches the sink's behaviour is accepted, another one is rejected with the reason,
# and so is an option that has another name here.
_EVERY_REPLICA: Final = "a record counts as delivered when all in-sync replicas have it"
_TIMEOUT_HINT: Final = "delivery.timeout.ms says how long a record is tried"
_BYTES: Final = (
    "org.apache.kafka.common.serialization.ByteArraySerializer",
    "org.apache.kafka.common.serialization.BytesSerializer",
    "org.apache.kafka.common.serialization.ByteBufferSerializer",
)
_ACCEPTED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "acks": (("all", "-1"), _EVERY_REPLICA),
    "request.required.acks": (("all", "-1"), _EVERY_REPLICA),
    "enable.idempotence": (("true",), "without it a retry could change the order, or double"),
    "retries": (("2147483647",), _TIMEOUT_HINT),
    "message.send.max.retries": (("2147483647",), _TIMEOUT_HINT),
    "partitioner": (("murmur2_random",), "keys are placed as Java's producers place them"),
    "key.serializer": (_BYTES, "format and key.format say how keys are encoded"),
    "value.serializer": (_BYTES, "format says how values are encoded"),
}
_ELSEWHERE: Final[Mapping[str, str]] = {
    "key.converter": "give key.format (avro, json, text), and schema.framing for a registry's ids",
    "value.converter": "give format (avro, json), and schema.framing for a registry's ids",
    "transactional.id": "give exactly.once: true; transactional.id.prefix begins all ids",
    "max.request.size": "give message.max.bytes",
    "sasl.jaas.config": "give sasl.username, and sasl.password as a reference: '${env:NAME}'",
    "ssl.truststore.location": "give ssl.ca.location, a file in PEM",
    "ssl.keystore.type": "give ssl.certificate.location and ssl.key.location, files in PEM",
}
STATED_KEYS: Final = tuple(_ACCEPTED)
STATED_PATTERN: Final = "|".join(map(re.escape, (*_ACCEPTED, *_ELSEWHERE)))


def stated_problems(given: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the reason why each of the keys *given* is rejected. No value is repeated."""
    for key, value in given.items():
        if key in _ELSEWHERE:
            yield Problem(key, "has another name here", _ELSEWHERE[key])
            continue
        accepted, reason = _ACCEPTED[key]
        if value not in accepted:
            yield Problem(key, f"can only be {accepted[0]} here: {reason}", "leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig(SinkOptions):
    """Options of the Kafka sink, with those of librdkafka."""

    bootstrap_servers: str = option(
        "The brokers: host:port, separated by commas.",
        name="bootstrap.servers",
    )
    topic: str = option(
        "The topic of a record: a name, or a pattern with {keyspace} and {table} in it."
    )
    topic_map: Mapping[str, str] = option(
        "`topic.map.<keyspace>.<table>`: the topic of one table.",
        keys_allowed=r"topic\.map\.[^.]+\.[^.]+",
    )
    topic_creation_enable: bool = option(
        "Create missing topics.", name="topic.creation.enable", default=False
    )
    topic_creation_partitions: int = option(
        "Partitions of a topic that headrace creates; -1: the brokers' default.",
        name="topic.creation.default.partitions",
        default=-1,
        minimum=-1,
    )
    topic_creation_replication: int = option(
        "Replication factor of a topic that headrace creates; -1: the brokers' default.",
        name="topic.creation.default.replication.factor",
        default=-1,
        minimum=-1,
    )
    topic_creation_config: Mapping[str, str] = option(
        "`topic.creation.default.<setting>`: any setting of a topic that headrace creates.",
        keys_allowed=r"topic\.creation\.default\.[a-z][a-z.]*",
    )
    format: str = option("How values are encoded: `avro`, `json`, or a plugin's.", default="avro")
    envelope: str = option(
        "The fields around a change.", default="cep44", choices=("cep44", "debezium", "flat")
    )
    key: str | None = option(
        "The columns of the key: `partition`, which keeps the order of a partition, or "
        "`primary`, which compaction needs and debezium has.",
        default=None,
    )
    types: str = option(
        "`lossless`, or `cep44`, the table of types of CEP-44, which loses values.",
        default="lossless",
        choices=("lossless", "cep44"),
    )
    key_format: str | None = option(
        "How keys are encoded, if not as values are: `avro`, `json`, `text`.",
        name="key.format",
        default=None,
    )
    tombstones_on_delete: bool = option(
        "Send a tombstone after a deletion of everything under its key.",
        name="tombstones.on.delete",
        default=False,
    )
    headers: tuple[str, ...] = option(
        "The headers of a message: schemaId, table, keyspace and token cost next to nothing; "
        "those of one record cost much: mutation, index, of, op, timestamp, traceparent, and the "
        "fields of the source's origin; Cassandra's are copies, node, segment and position.",
        default=("schemaId", "table", "token"),
    )
    exactly_once: bool = option(
        "Write in transactions that include the positions: a consumer that reads "
        "committed messages gets every change once.",
        name="exactly.once",
        default=False,
    )
    offsets_topic: str = option(
        "The compacted topic that keeps the positions, exactly once; created if missing.",
        name="offsets.storage.topic",
        default="headrace-offsets",
    )
    transactional_id_prefix: str = option(
        "Transactional ids are this, the job and the split, with `-` between.",
        name="transactional.id.prefix",
        default="headrace",
    )
    signal_topic: str | None = option(
        "The topic of messages that ask the job for snapshots, in the form of Debezium's signals.",
        name="signal.topic",
        default=None,
    )
    signal_group: str | None = option(
        "The consumer group that reads them; default: `headrace-signals-` and the job.",
        name="signal.group.id",
        default=None,
    )
    connect_timeout_ms: int = option(
        "How long to wait for a broker and the topic before giving up.",
        name="connect.timeout.ms",
        default=10_000,
        minimum=100,
        maximum=600_000,
    )
    submit_timeout_ms: int = option(
        "How long a full queue may delay a batch before the batch is retried.",
        name="submit.timeout.ms",
        default=5_000,
        minimum=0,
        maximum=600_000,
    )
    sasl_password: str | None = option(
        "Password for SASL.", name="sasl.password", default=None, secret=True
    )
    ssl_key_password: str | None = option(
        "Password of the private key.", name="ssl.key.password", default=None, secret=True
    )
    ssl_keystore_password: str | None = option(
        "Password of the key store.", name="ssl.keystore.password", default=None, secret=True
    )
    librdkafka: Mapping[str, str] = option(
        "Options of librdkafka: security, compression, batching, time-outs.",
        keys_allowed=CLIENT_KEYS,
        keys_known=_KNOWN,
    )
    stated: Mapping[str, str] = option(
        "Options of Kafka's clients that have a fixed value here: `acks=all`, "
        "`enable.idempotence=true`, `retries=2147483647`, `partitioner=murmur2_random`, "
        "and serializers of bytes.",
        keys_allowed=STATED_PATTERN,
        keys_known=STATED_KEYS,
    )

    def __post_init__(self) -> None:
        """Check each option by itself."""
        SinkOptions.__post_init__(self)
        problems = [
            *(_server_problem(server) for server in self.bootstrap_servers.split(",")),
            _topic_problem("topic", re.sub(r"\{(keyspace|table)\}", "x", self.topic)),
            *(_topic_problem(key, topic) for key, topic in self.topic_map.items()),
            _topic_problem("offsets.storage.topic", self.offsets_topic),
            _topic_problem("errors.deadletterqueue.topic.name", self.errors_topic or "x"),
            _topic_problem("signal.topic", self.signal_topic or "x"),
            _codec_problem("format", self.format),
            _codec_problem("key.format", self.key_format or "avro"),
            _key_problem(self.key),
            self._size_problem(),
            self._offsets_problem(),
            self._signals_problem(),
            _policy_problem(self.envelope, {self.large_policy, *self.large_policies.values()}),
            *header_problems(self.headers),
            *stated_problems(self.stated),
        ]
        found = [problem for problem in problems if problem]
        if found:
            raise ConfigError(found)

    def encoding(self) -> Encoding:
        """Return the encoding of the records."""
        return Encoding(
            codec=self.format,
            key_codec=self.key_format or "",
            envelope=self.envelope,
            types=self.types,
            key=self.key or ("primary" if self.envelope == "debezium" else "partition"),
            tombstones=self.tombstones_on_delete,
            value_bytes_max=self.value_bytes_max,
            headers=self.headers,
        )

    def is_chunked(self, table: str) -> bool:
        """Return whether large values of *table* are sent in parts."""
        return self.large_policy_of(table) == "chunk"

    @property
    def chunk_bytes(self) -> int | None:
        """The size above which values are sent in parts; None if this applies to no table."""
        policies = {self.large_policy, *self.large_policies.values()}
        return self.value_bytes_max if "chunk" in policies else None

    @property
    def value_bytes_max(self) -> int:
        """The size above which a value is too large for a message with key and headers."""
        return self._room_bytes if self.large_bytes is None else self.large_bytes

    @property
    def _room_bytes(self) -> int:
        """The space of a message for its value."""
        whole = int(self.librdkafka.get(_MESSAGE_BYTES, MESSAGE_BYTES_MAX))
        return max(whole - ROOM_BYTES, whole // 2)

    def _size_problem(self) -> Problem | None:
        given = self.librdkafka.get(_MESSAGE_BYTES, "0")
        if not (given.isascii() and given.isdigit()):
            return Problem(
                _MESSAGE_BYTES,
                f"expected a whole number of bytes, found {given!r}",
                "such as 1000000",
            )
        if self.large_bytes is None or self.large_bytes <= self._room_bytes:
            return None
        return Problem(
            "large.bytes",
            f"expected at most {self._room_bytes}, {_MESSAGE_BYTES} less room for key and headers, "
            f"found {self.large_bytes}",
            f"give {_MESSAGE_BYTES}: {self.large_bytes + ROOM_BYTES}, if the topics take as much",
        )

    def _offsets_problem(self) -> Problem | None:
        taken = {self.topic, *self.topic_map.values(), self.errors_topic}
        if not self.exactly_once or self.offsets_topic not in taken:
            return None
        what = f"{self.offsets_topic} is a topic of records, whose consumers would get positions"
        return Problem("offsets.storage.topic", what, "keep the positions in a topic of their own")

    def _signals_problem(self) -> Problem | None:
        taken = {self.topic, *self.topic_map.values(), self.errors_topic}
        if self.signal_topic is None or self.signal_topic not in taken:
            return None
        what = f"{self.signal_topic} is a topic of records, which would be read as signals"
        return Problem("signal.topic", what, "send signals to a topic of their own")

    @property
    def hosts(self) -> Sequence[str]:
        """The hosts of `bootstrap.servers`."""
        found = (_SERVER.fullmatch(server.strip()) for server in self.bootstrap_servers.split(","))
        return [match["v6"] or match["host"] for match in found if match]

    def producer_config(self) -> dict[str, str]:
        """Return the configuration of a librdkafka producer; it may contain passwords."""
        secrets = {
            "sasl.password": self.sasl_password,
            "ssl.key.password": self.ssl_key_password,
            "ssl.keystore.password": self.ssl_keystore_password,
        }
        return {
            **DEFAULTS,
            **self.librdkafka,
            **{key: secret for key, secret in secrets.items() if secret is not None},
            # Topics created by brokers would have other settings than configured.
            **({"allow.auto.create.topics": "false"} if self.topic_creation_enable else {}),
            **PROMISES,
            "bootstrap.servers": self.bootstrap_servers,
        }

    def admin_config(self) -> dict[str, str | int | float | bool]:
        """Return the configuration of an admin client; it may contain passwords."""
        made = self.producer_config()
        return {key: made[key] for key in made if key.startswith(_SHARED) or key == "log_level"}


def _topic_problem(key: str, topic: str) -> Problem | None:
    if _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return None
    hint = "use letters, digits, . _ -, and {keyspace} and {table}"
    return Problem(key, f"{topic!r} is not a topic name", hint)


def _policy_problem(envelope: str, policies: set[str]) -> Problem | None:
    if envelope != "debezium" or "truncate" not in policies:
        return None
    hint = "chunk and claim-check keep everything"
    return Problem("large.policy", "debezium's envelope cannot say what was cut off", hint)


def _key_problem(key: str | None) -> Problem | None:
    if key in (None, "partition", "primary"):
        return None
    return Problem("key", f"expected partition or primary, found {key!r}")


def _codec_problem(key: str, name: str) -> Problem | None:
    known = names("codecs")
    if name in known:
        return None
    return Problem(key, f"format {name!r} is unknown", f"there are {', '.join(known)}")


def _server_problem(server: str) -> Problem | None:
    match = _SERVER.fullmatch(server.strip())
    if match and 0 < int(match["port"] or _PORT_MAX) <= _PORT_MAX:
        host = match["v6"] or match["host"]
        wrong = host_problem(host)
        return Problem("bootstrap.servers", f"{host!r} {wrong}") if wrong else None
    return Problem("bootstrap.servers", f"{server!r} is not host:port", "as in broker1:9092")
