"""How fast `headrace verify --sink` reads a topic: `make bench-verify`.

Recorded changes go to a real broker again and again, each time under new names. All processors
read them back: once with a consumer that only touches values and headers, and once as the command
does. The broker shares the processors with both.
"""

import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.brokers import broker_parser, brokers
from bench.errors import ProbeFailedError
from headrace.connector.foundation.configured import configured
from headrace.connector.runtime.books.sink_contents import content_of
from headrace.connector.serde import Encoder
from headrace.connector.serde.change_names import ChangeNames
from headrace.connector.serde.decoding import Decoder
from headrace.connector.stores import TableCounts
from headrace.plugins import RecordSchema, Sink
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.encode.origin import ORIGIN

MESSAGES: Final = 1_600_000
PARTITIONS: Final = 4
RUNS: Final = 3
GOAL: Final = 200_000  # Records in a second.
_SPREAD: Final = 0x9E37_79B9_7F4A_7C15  # Odd, so that numbers spread over all names.
Message = tuple[str, bytes, list[tuple[str, str | bytes | None]], bytes]


def recorded(encoder: Encoder) -> tuple[Sequence[Message], Sequence[RecordSchema]]:
    """Return the table, value, headers and mutation of each recorded change; and the schemas."""
    from helpers.recordings.batches import recorded_batches  # noqa: PLC0415 (beside `real`)

    found: list[Message] = []
    schemas: dict[bytes, RecordSchema] = {}
    for batch in recorded_batches("5.0-ops"):
        schemas |= {schema.schema_id: schema for schema in batch.schemas()}
        encoded = encoder.encode(batch, token=1)
        facts = encoded.facts
        if facts is None:
            raise ProbeFailedError("the encoder does not report the names of changes")
        for i, (table, value) in enumerate(zip(encoded.tables, encoded.values, strict=True)):
            begin = 16 * facts.mutations[i]
            if value is not None:
                headers: list[tuple[str, str | bytes | None]] = list(encoded.headers[i])
                found.append((table, value, headers, facts.ids[begin : begin + 16]))
    return found, list(schemas.values())


def produced(servers: str, topic: str, changes: Sequence[Message], count: int) -> Counter[str]:
    """Send *count* messages under names of their own; return how many there are of each table."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
    tables: Counter[str] = Counter()
    for number in range(count):
        table, value, headers, mutation = changes[number % len(changes)]
        name = struct.pack(">QQ", number * _SPREAD % 2**64, number)
        value = value.replace(mutation, name)
        producer.produce(topic, value, partition=number % PARTITIONS, headers=headers)
        tables[table] += 1
        if number % 1_000 == 0:
            producer.poll(0)
    if left := producer.flush(60):
        raise ProbeFailedError(f"{left} of {count} messages were not delivered")
    return tables


def touched(servers: str, topic: str, partitions: Sequence[int]) -> int:
    """Return how many messages there are, and look at value and headers of each. A bound."""
    count = 0
    for number in partitions:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "bound",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 10,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0)])
        is_ended = False
        while not is_ended:
            for message in consumer.consume(500, timeout=0.1):
                is_ended = is_ended or message.error() is not None
                count += message.value() is not None and bool(message.headers())
        consumer.close()
    return count


def opened(servers: str, topic: str, schemas: Sequence[RecordSchema]) -> tuple[Sink, ChangeNames]:
    """Open the sink, and what reads the names of its changes."""
    sink = sink_of(servers, topic)
    encoder = Encoder(sink.encoding(), ORIGIN)
    return sink, ChangeNames(sink.encoding(), encoder, schemas, Decoder.of(sink, {}, Path()))


def sink_of(servers: str, topic: str) -> Sink:
    """Return a Kafka sink that writes Avro to one topic."""
    options = {
        "plugin": "kafka",
        "bootstrap.servers": servers,
        "topic": topic,
        "format": "avro",
    }
    plugin, config = configured("sink", options)
    sink = plugin(config, context())
    assert isinstance(sink, Sink)  # noqa: S101 (for mypy: it was looked up as one)
    return sink


def rate(count: int, found: Callable[[], int]) -> float:
    """Return how many messages a second *found* reads, which must be all."""
    begin = time.perf_counter()
    if (came := found()) != count:
        raise ProbeFailedError(f"{came} of {count} messages were read")
    return count / (time.perf_counter() - begin)


def measured(servers: str, count: int, runs: int) -> tuple[float, float]:
    """Return the greatest rate of the bound, and that of the command."""
    processes = len(os.sched_getaffinity(0))
    topic = f"changes-{uuid4().hex}"
    changes, schemas = recorded(Encoder(sink_of(servers, topic).encoding(), ORIGIN))
    tables = produced(servers, topic, changes, count)
    counters = {table: TableCounts(n, n) for table, n in tables.items()}
    shares = [range(first, PARTITIONS, processes) for first in range(processes)]

    def touch() -> int:
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            return sum(pool.map(partial(touched, servers, topic), shares))

    def count_changes() -> int:
        content = content_of(
            partial(opened, servers, topic, schemas), counters, processes=processes
        )
        return sum(table.found for table in content.tables.values())

    rates = [(rate(count, touch), rate(count, count_changes)) for _ in range(runs)]
    return max(r[0] for r in rates), max(r[1] for r in rates)


def main() -> int:
    """Print the greatest rates of the runs; return 1 if the goal was missed."""
    parser = broker_parser("bench.sink_reading", __doc__, runs=RUNS)
    parser.add_argument("--messages", type=int, default=MESSAGES, help="how many are read in a run")
    given = parser.parse_args()
    with brokers(given) as (servers, _):
        bound, found = measured(servers, given.messages, given.runs)
    sys.stdout.write(
        f"{given.messages} messages, a consumer alone: {bound:,.0f} records/s\n"
        f"verify --sink: {found:,.0f} records/s (goal: at least {GOAL:,})\n"
    )
    return int(found < GOAL and not given.no_alarm)


if __name__ == "__main__":
    sys.exit(main())
