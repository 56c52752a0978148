"""Options of Kafka's clients that this sink does not leave open.

The one value that says what the sink does in any case is accepted, since configurations of other
producers have it. Another value is refused with the reason, and so is an option that has another
name here.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from headrace.plugins import Problem

_EVERY_REPLICA: Final = "a record counts as delivered when all in-sync replicas have it"
_PATIENCE: Final = "delivery.timeout.ms says how long a record is tried"
_BYTES: Final = (
    "org.apache.kafka.common.serialization.ByteArraySerializer",
    "org.apache.kafka.common.serialization.BytesSerializer",
    "org.apache.kafka.common.serialization.ByteBufferSerializer",
)
# What is accepted, and why nothing else is.
_ACCEPTED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "acks": (("all", "-1"), _EVERY_REPLICA),
    "request.required.acks": (("all", "-1"), _EVERY_REPLICA),
    "enable.idempotence": (("true",), "without it a retry could change the order, or double"),
    "retries": (("2147483647",), _PATIENCE),
    "message.send.max.retries": (("2147483647",), _PATIENCE),
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
    """Say of each of the keys *given* why it is not accepted. No value is repeated."""
    for key, value in given.items():
        if key in _ELSEWHERE:
            yield Problem(key, "has another name here", _ELSEWHERE[key])
            continue
        accepted, reason = _ACCEPTED[key]
        if value not in accepted:
            yield Problem(key, f"can only be {accepted[0]} here: {reason}", "leave it out")
