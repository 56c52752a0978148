"""The Faust app around `latest`: a process of its own, with its table at `/rows/KEYSPACE.TABLE/`.

python -m headrace.connector.streams.app --bootstrap-servers b:9092 --topic orders --state s.db
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faust
import msgspec
from aiokafka import AIOKafkaConsumer
from faust.web import Request, Response, View

from headrace.connector.serde.schemas.lookup import JobSchemas
from headrace.connector.streams.latest import LatestRows, Schemas
from headrace.plugins import MissingRequirementError


class TopicUnknownError(MissingRequirementError):
    """The topic to follow does not exist."""

    code = "topic_unknown"


async def partitions_of(bootstrap_servers: str, topic: str) -> int:
    """Return how many partitions *topic* has: the table must have as many."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers)
    await consumer.start()
    try:
        found = await consumer._client.fetch_all_metadata()  # noqa: SLF001 (it says no other way)
        partitions = found.partitions_for_topic(topic)
    finally:
        await consumer.stop()
    if not partitions:
        raise TopicUnknownError(f"there is no topic {topic}", place=bootstrap_servers)
    return len(partitions)


def latest_rows(app: faust.App, topic: str, schemas: Schemas, partitions: int) -> LatestRows:
    """Have *app* keep the newest rows of what *topic* says, and show them; return them."""
    raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes}  # Any: of a Faust schema.
    raw |= {"key_serializer": "raw", "value_serializer": "raw"}
    followed = app.topic(topic, **raw)
    table = app.Table("rows", partitions=partitions, schema=faust.Schema(**raw))
    rows = LatestRows(schemas, table)

    @app.agent(followed)
    async def fold(stream: Any) -> None:  # noqa: ANN401 (Faust's streams are generic)
        async for event in stream.events():
            rows.take(event.value, dict(event.headers))

    @app.page("/rows/{name}/")
    async def show(view: View, request: Request, name: str) -> Response:
        del request
        content = msgspec.json.encode(list(rows.rows(name)))
        return view.bytes(content, content_type="application/json")

    return rows


def main(arguments: Sequence[str]) -> None:
    """Follow a topic until it is asked to stop."""
    parser = argparse.ArgumentParser(prog="headrace.connector.streams.app")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--state", type=Path, required=True, help="the job's state file, with the schemas"
    )
    parser.add_argument(
        "--name", default="headrace-rows", help="the name of the app and its consumer group"
    )
    parser.add_argument("--folder", type=Path, default=Path("rows"), help="Faust's own files")
    parser.add_argument(
        "--port", type=int, default=6066, help="the port that shows rows, on loopback"
    )
    given = parser.parse_args(arguments)
    partitions = asyncio.run(partitions_of(given.bootstrap_servers, given.topic))
    app = faust.App(
        given.name,
        broker=f"kafka://{given.bootstrap_servers}",
        store="memory://",
        datadir=str(given.folder),
        topic_partitions=partitions,
        web_host="127.0.0.1",
        web_bind="127.0.0.1",
        web_port=given.port,
    )
    latest_rows(app, given.topic, JobSchemas(given.state), partitions)
    faust.Worker(app, loglevel="WARN").execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1:])
