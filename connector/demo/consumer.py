"""The demo's consumer: a program like any user's, which knows only the topic and the schemas.

Prints only one line once it is ready; writes one JSON object per message to a file. Reads until
standard input is closed and it has caught up with the topic.
"""

import argparse
import io
import os
import select
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import fastavro
import msgspec
from confluent_kafka import Consumer, Message, TopicPartition

from headrace.connector.serde.schemas.lookup import JobSchemas, MessageSchemas, Named
from headrace.plugins import FatalError, HeadraceError

CONNECT_SECONDS: Final = 60
WAIT_SECONDS: Final = 0.02
MESSAGES_MAX: Final = 1_000
_HINT: Final = "the embedded broker keeps 5 MiB of a partition: read while it is written"


class MessagesLostError(FatalError):
    """The broker dropped messages before they were read, or ended."""

    code = "demo_messages_lost"


class Received(msgspec.Struct, frozen=True):
    """One message: its place, the table of its schema, and its decoded key and value."""

    partition: int | None
    offset: int | None
    monotonic_s: float
    table: str
    key: Any  # Any: shaped by the schema.
    value: Any  # Any: shaped by the schema.


class Topic:
    """All messages of one topic from its beginning, without a gap."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        """Connect; a missing topic is created."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "headrace-demo",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": True,
                "fetch.wait.max.ms": 10,
                "log_level": 2,
            }
        )
        found = self._consumer.list_topics(topic, timeout=CONNECT_SECONDS).topics[topic]
        self._next: dict[int | None, int] = dict.fromkeys(found.partitions, 0)
        self._topic = topic
        self._consumer.assign([TopicPartition(topic, number, 0) for number in found.partitions])

    def messages(self) -> Iterator[Message]:
        """Return the messages that come within `WAIT_SECONDS`.

        Raises:
            MessagesLostError: offsets are missing.

        """
        for message in self._consumer.consume(MESSAGES_MAX, timeout=WAIT_SECONDS):
            if error := message.error():
                raise MessagesLostError(error.str(), place=self._topic, hint=_HINT)
            partition = message.partition()
            if message.offset() != self._next[partition]:
                raise MessagesLostError(
                    f"expected offset {self._next[partition]}, found {message.offset()}",
                    place=f"{self._topic}, partition {partition}",
                    hint=_HINT,
                )
            self._next[partition] += 1
            yield message

    def is_caught_up(self) -> bool:
        """Return whether nothing is left to read now."""
        return all(
            self._consumer.get_watermark_offsets(place, timeout=CONNECT_SECONDS)[1]
            == self._next[place.partition]
            for place in self._consumer.assignment()
        )

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()


def decode(
    message: Message, schemas: MessageSchemas, monotonic_s: float, *, prefix_bytes: int = 0
) -> Received:
    """Decode *message* with the schemas that it names; key and value begin with a prefix.

    Raises as `MessageSchemas.find`.
    """
    schema = schemas.find(_named(message))
    return Received(
        partition=message.partition(),
        offset=message.offset(),
        monotonic_s=monotonic_s,
        table=schema.table,
        key=_datum(message.key(), prefix_bytes, schema.key),
        value=_datum(message.value(), prefix_bytes, schema.value),
    )


def _named(message: Message) -> Named:
    headers = dict(message.headers() or ())
    return Named(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        key=message.key(),
        value=message.value() or b"",
        headers={name: value for name, value in headers.items() if isinstance(value, bytes)},
    )


def _datum(content: bytes | None, begin: int, schema: Any) -> Any:  # noqa: ANN401 (of Avro)
    return fastavro.schemaless_reader(io.BytesIO((content or b"")[begin:]), schema, None)


def main(arguments: Sequence[str]) -> int:
    """Consume until standard input ends; return the exit status."""
    parser = argparse.ArgumentParser(prog="headrace.connector.demo.consumer")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--state", type=Path, required=True, help="the state file with the schemas")
    parser.add_argument("--out", type=Path, required=True, help="gets one JSON object per message")
    parser.add_argument("--withhold", type=int, default=-1, help="leave out the N-th, from 0")
    options = parser.parse_args(arguments)
    try:
        _consume(options)
    except HeadraceError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return error.exit_status
    return 0


def _consume(options: argparse.Namespace) -> None:
    topic = Topic(options.bootstrap_servers, options.topic)
    schemas = JobSchemas(options.state)
    encoder = msgspec.json.Encoder()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    count = 0
    with options.out.open("wb") as out:
        while True:
            ending = _input_ended()
            for message in topic.messages():
                if count != options.withhold:
                    received = decode(message, schemas, time.monotonic())
                    out.write(encoder.encode(received) + b"\n")
                count += 1
            out.flush()
            if ending and topic.is_caught_up():
                break
    schemas.close()
    topic.close()


def _input_ended() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
