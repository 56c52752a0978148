"""A blob of 20 MB through a real broker, whose messages have at most one."""

import os
from pathlib import Path

import pytest

from headrace.connector.serde import Encoder
from headrace.connector.serde.large import (
    DirectoryClaimStore,
    DirectoryConfig,
    Reassembler,
    resolved,
)
from headrace.plugins import (
    Delivery,
    NumberPosition,
    Operation,
    Record,
    RecordBatch,
    RecordSchema,
    parse_config,
)
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from helpers.jobs.deliveries import Results, consume, context, delivery_of, drained

pytestmark = pytest.mark.real

BLOB = os.urandom(20 << 20)
SCHEMA = RecordSchema.of(
    "ks.blobs",
    "CREATE TABLE ks.blobs (…)",
    key={"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]},
    value={"type": "record", "name": "Row", "fields": [{"name": "blob", "type": "bytes"}]},
)


@pytest.mark.parametrize("policy", ["chunk", "claim-check"])
def test_a_blob_of_20_mb_passes(bootstrap_servers: str, tmp_path: Path, policy: str) -> None:
    """In parts, or beside the message; what a consumer puts together is what was written."""
    topic = f"blobs-{policy}"
    given = {"bootstrap.servers": bootstrap_servers, "topic": topic, "large.policy": policy}
    config = parse_config(KafkaConfig, given)
    sink = KafkaSink(config, context())
    claims = DirectoryClaimStore(DirectoryConfig(path=str(tmp_path)))
    encoder = Encoder(sink.encoding(), options=config, claims=claims)
    record = Record(
        key={"id": 1},
        value={"blob": BLOB},
        operation=Operation.INSERT,
        timestamp_us=0,
        schema=SCHEMA,
    )
    batch = RecordBatch("all", NumberPosition(0), len(BLOB), [record])
    writer, results = sink.open(), Results()

    writer.submit(Delivery(delivery_of().batch, encoder.encode(batch, token=1)), results)
    assert drained(writer)

    assert [(range(1), [])] == results.all
    joiner, found = Reassembler(), []
    for message in consume(bootstrap_servers, topic):
        headers = {
            name: content
            for name, content in dict(message.headers() or ()).items()
            if isinstance(content, bytes)
        }
        value = joiner.add(message.value() or b"", headers)
        if value is not None:
            found.append(resolved(value, headers, tmp_path))
    (value,) = found
    assert value.endswith(BLOB)
