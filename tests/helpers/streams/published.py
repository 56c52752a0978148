"""What a job published of a recording, and the changes that it has, by the source's own records."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Message, Producer

from headrace.connector.commands.cli import main
from headrace.connector.streams.changes import Change, ChangeReader
from headrace.plugins import Record
from helpers.jobs.deliveries import consume
from helpers.recordings.batches import recorded_batches, source_of

RECORDING = "5.0-types"  # With values of every type, some of them of many bytes.


def published(folder: Path, servers: str, topic: str, *, kept_in: str = "", **sink: str) -> Path:
    """Run a job of the recording, with these options of its sink; return its file.

    The state is in the SQLite file *kept_in*, as a store, if it is given.
    """
    job: dict[str, Any] = {
        "job": f"published-{topic}",
        "state": "state.db",
        "source": source_of(RECORDING, splits=1),
        "sink": {"plugin": "kafka", "bootstrap.servers": servers, "topic": topic, **sink},
    }
    if kept_in:
        job["store"] = {"plugin": "sqlite", "path": kept_in}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))
    assert main(["--log-level", "error", "run", str(path), "--until-idle"]) == 0
    return path


def records() -> list[Record]:
    """Return the records of the recording, as the source decodes them."""
    return [record for batch in recorded_batches(RECORDING) for record in batch.records()]


def read(reader: ChangeReader, servers: str, topic: str) -> Iterator[Change]:
    """Yield the changes of a topic."""
    for message in consume(servers, topic):
        headers: Any = message.headers()
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        place = topic, partition
        change = reader.read(*place, message.key(), message.value(), headers, offset=offset)
        if change is not None:
            yield change


Fact = tuple[str, str, int, frozenset[str]]


def facts_of_records() -> list[Fact]:
    """Return table, operation, write time and written columns of each change."""
    return sorted(
        (r.schema.table, r.operation.value, r.timestamp_us, frozenset(r.value["updateFields"]))
        for r in records()
    )


def facts_of(change: Change) -> Fact:
    """Return the same of a change that was read."""
    return change.table, change.operation.value, change.timestamp_us, change.written


def by_name(change: Mapping[str, Any]) -> tuple[bytes, int]:
    """Return what sorts changes in `cep44`."""
    return change["mutation"], change["index"]


def send(servers: str, topic: str, messages: Iterable[Message], partition: int = 0) -> None:
    """Send messages again, with their headers, to a partition of *topic*."""
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 4_000_000})
    for message in messages:
        headers: Any = message.headers()
        producer.produce(
            topic, message.value(), message.key(), partition=partition, headers=headers
        )
    assert producer.flush(30) == 0
