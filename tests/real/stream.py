"""Both ends of a live stream: the worker as a process, and a plain consumer of its topic."""

import io
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import confluent_kafka
import fastavro
import msgspec
import yaml
from confluent_kafka import TopicPartition

from headrace.connector.serde.schemas.lookup import JobSchemas

HEADRACE: Final = (
    sys.executable,
    "-c",
    "import sys; from headrace.connector.commands.cli import main; sys.exit(main())",
)
STOP_SECONDS_MAX: Final = 120
BROKER_SECONDS_MAX: Final = 60
POLL_SECONDS: Final = 0.1
READS_MAX: Final = 10_000

Json = dict[str, Any]  # Any: what a schema of the test's tables makes of a row.


class Worker:
    """`headrace run` on a job. Leaving the context kills it, if it still runs."""

    def __init__(self, job: Mapping[str, object], folder: Path, *arguments: str) -> None:
        """Write the job file into *folder* and start."""
        (folder / "job.yaml").write_text(yaml.safe_dump(dict(job)), encoding="utf-8")
        self.log = folder / "worker.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (headrace itself)
                [*HEADRACE, "run", str(folder / "job.yaml"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def process_id(self) -> int:
        """Its process."""
        return self._process.pid

    def running(self) -> bool:
        """Tell whether it has not ended."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for its end; return the exit status."""
        return self._process.wait(STOP_SECONDS_MAX)

    def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        self.send(signal.SIGTERM)
        return self.wait()

    def send(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, if it still runs."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        """Return the worker."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it; after `stop` or `wait` there is nothing to kill."""
        self.kill()


class Listener:
    """A consumer of all partitions of a topic, which decodes with the schema a header names."""

    def __init__(self, bootstrap_servers: str, topic: str, state: Path) -> None:
        """Begin at the beginning."""
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": topic,
                "enable.auto.commit": False,
                "allow.auto.create.topics": True,
                "log_level": 0,
            }
        )
        self._state = state
        self._schemas: JobSchemas | None = None
        partitions: Mapping[int, object] = {}
        while not partitions:
            partitions = (
                self._consumer.list_topics(topic, timeout=BROKER_SECONDS_MAX)
                .topics[topic]
                .partitions
            )
        self._places = [TopicPartition(topic, number, 0) for number in partitions]
        self._consumer.assign(self._places)

    def receive(self) -> Iterator[Json]:
        """Return the values of what has come since."""
        for message in self._consumer.consume(1_000, timeout=POLL_SECONDS):
            assert message.error() is None
            if self._schemas is None:
                self._schemas = JobSchemas(self._state)
            schema_id = dict(message.headers() or ())["schemaId"]
            assert isinstance(schema_id, bytes)
            value = io.BytesIO(message.value() or b"")
            schema = dict(self._schemas.get(schema_id).value)
            read = fastavro.schemaless_reader(value, schema, None)
            assert isinstance(read, dict)
            assert not value.read()
            yield read

    def published(self) -> int:
        """Return how many messages the topic has."""
        offsets = (
            self._consumer.get_watermark_offsets(place, BROKER_SECONDS_MAX)
            for place in self._places
        )
        return sum(high for _, high in offsets)

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()
        if self._schemas is not None:
            self._schemas.close()


def durable_offset(cdc_raw: Path, segment: int) -> int | None:
    """Return what the segment's idx says, or None if there is none any more.

    Cassandra empties the file before it writes it again: an empty one is read again.
    """
    with suppress(FileNotFoundError):
        for _ in range(READS_MAX):
            text = (cdc_raw / f"CommitLog-7-{segment}_cdc.idx").read_text()
            if text.strip():
                return int(text.split()[0])
    return None


def completed_segments(cdc_raw: Path) -> set[int]:
    """Return the segments that Cassandra says it is done with."""
    found = set()
    for path in cdc_raw.glob("CommitLog-7-*_cdc.idx"):
        with suppress(FileNotFoundError):
            if "COMPLETED" in path.read_text():
                found.add(int(path.name.removesuffix("_cdc.idx").rpartition("-")[2]))
    return found


def fact_of(value: Json) -> bytes:
    """Return what a message says, in one canonical form, without when it expires and provenance."""
    payload = {name: _plain(part) for name, part in value["payload"].items() if part is not None}
    return fact(
        f"{value['sourceKeyspace']}.{value['sourceTable']}",
        value["operationType"],
        value["timestampMicros"],
        payload,
        fields=value["updateFields"],
        static=value["isStatic"],
        ttl=value["ttl"],
        deleted=value["range"],
        notes=[[c["field"], c["timestampMicros"], c["ttl"]] for c in value["cells"]],
    )


def fact(  # noqa: PLR0913 (these are what a message says)
    table: str,
    operation: str,
    timestamp: int,
    payload: Json,
    *,
    fields: list[str] | None = None,
    static: bool = False,
    ttl: int | None = None,
    deleted: Json | None = None,
    notes: list[list[object]] | None = None,
) -> bytes:
    """Return the canonical form of a change."""
    said = [table, operation, timestamp, payload, sorted(fields or ()), static, ttl, deleted, notes]
    return msgspec.json.encode([part or None for part in said], order="deterministic")


def _plain(part: object) -> object:
    """Return a collection's mode and cells, as key, value and whether it was removed.

    Of a UDT the cells are by field.
    """
    if isinstance(part, dict) and "mode" in part:
        if "fields" in part:
            by_field = part["fields"].items()
            return {part["mode"]: {f: c and [c["value"], c["removed"]] for f, c in by_field}}
        cells = [[c["key"], c.get("value"), c["removed"]] for c in part["cells"]]
        return {part["mode"]: cells}
    return part
