"""Options of the Kafka sink, and what librdkafka is told.

librdkafka's keys pass by an allow-list: some of the others load libraries, run programs, or switch
off what the sink promises (`acks`, idempotence, the partitioner).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace.plugins import ConfigError, Problem, option
from headrace.plugins.codecs import header_problems

_ALLOWED: Final = (
    r"security\.protocol",
    r"sasl\.(mechanisms?|username)",
    r"ssl\.(ca|certificate|crl|key|keystore)\.location",
    r"ssl\.(cipher\.suites|curves\.list|sigalgs\.list|endpoint\.identification\.algorithm)",
    r"enable\.ssl\.certificate\.verification",
    r"client\.(id|rack|dns\.lookup)",
    r"compression\.(type|codec|level)",
    r"linger\.ms|batch\.(size|num\.messages)|sticky\.partitioning\.linger\.ms",
    r"queue\.buffering\.max\.(messages|kbytes|ms)",
    r"message\.(max\.bytes|copy\.max\.bytes|timeout\.ms)|delivery\.timeout\.ms",
    r"request\.timeout\.ms|retry\.backoff(\.max)?\.ms|max\.in\.flight",
    r"socket\.(timeout\.ms|keepalive\.enable|nagle\.disable|connection\.setup\.timeout\.ms)",
    r"broker\.address\.(ttl|family)|reconnect\.backoff(\.max)?\.ms|connections\.max\.idle\.ms",
    r"metadata\.max\.age\.ms|topic\.metadata\.refresh\.interval\.ms",
    r"allow\.auto\.create\.topics",
)

# What the sink promises, whatever the options say.
PROMISES: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",  # As Java producers place keys.
}
DEFAULTS: Final = {
    "delivery.timeout.ms": "120000",  # Then the framework retries, before it loses patience.
    "queue.buffering.max.kbytes": "32768",  # Bounds the memory of records not yet acknowledged.
    "queue.buffering.max.messages": "100000",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "2000",
    "log_level": "2",  # Errors come through the error callback, into our log.
}
_SERVER: Final = re.compile(r"(?:[A-Z_]+://)?(?:\[[0-9a-fA-F:.]+\]|[^\s:,/?\[\]]+)(?::(\d{1,5}))?")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """Options of the Kafka sink; keys of librdkafka stand beside them."""

    bootstrap_servers: str = option(
        "Where to find the cluster: host:port, more than one with commas.",
        name="bootstrap.servers",
    )
    topic: str = option("The topic that takes every record.")
    format: str = option("How key and value are encoded.", default="avro", choices=("avro", "json"))
    headers: tuple[str, ...] = option(
        "The headers of a message: schemaId, table, keyspace and token cost next to nothing; "
        "those of one record cost much: mutation, index, of, op, timestamp, copies, node, segment, "
        "position, traceparent.",
        default=("schemaId", "table", "token"),
    )
    connect_timeout_ms: int = option(
        "How long to wait for a broker and the topic before giving up.",
        name="connect.timeout.ms",
        default=10_000,
        minimum=100,
        maximum=600_000,
    )
    submit_timeout_ms: int = option(
        "How long a full queue may hold up a batch before the batch is retried.",
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
        "Keys that librdkafka knows: security, compression, batching, time-outs.",
        keys_allowed="|".join(_ALLOWED),
    )

    def __post_init__(self) -> None:
        """Check what one option alone can show to be wrong."""
        problems = [_server_problem(server) for server in self.bootstrap_servers.split(",")]
        if not _TOPIC.fullmatch(self.topic) or self.topic in (".", ".."):
            problems.append(
                Problem("topic", f"{self.topic!r} is no topic name", "use letters, digits, . _ -")
            )
        found = [problem for problem in problems if problem] + header_problems(self.headers)
        if found:
            raise ConfigError(found)

    def producer_config(self) -> dict[str, str]:
        """Return what a librdkafka producer is made with; it may hold passwords."""
        secrets = {
            "sasl.password": self.sasl_password,
            "ssl.key.password": self.ssl_key_password,
            "ssl.keystore.password": self.ssl_keystore_password,
        }
        return {
            **DEFAULTS,
            **self.librdkafka,
            **{key: secret for key, secret in secrets.items() if secret is not None},
            **PROMISES,
            "bootstrap.servers": self.bootstrap_servers,
        }


def _server_problem(server: str) -> Problem | None:
    match = _SERVER.fullmatch(server.strip())
    if match and 0 < int(match[1] or _PORT_MAX) <= _PORT_MAX:
        return None
    return Problem("bootstrap.servers", f"{server!r} is not host:port", "as in broker1:9092")
