"""A client in another language reads what the sink writes, by the embedded registry."""

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from helpers.servers.registries import registry
from real.servers.maven import program

pytestmark = pytest.mark.real

PACKAGE = "@kafkajs/confluent-schema-registry@3"
INSTALL_SECONDS_MAX = 600
RUN_SECONDS_MAX = 600
SCRIPT = """
const { SchemaRegistry } = require('@kafkajs/confluent-schema-registry');
(async () => {
  const registry = new SchemaRegistry({ host: process.argv[2] });
  const read = await registry.decode(Buffer.from(process.argv[3], 'hex'));
  const id = await registry.getLatestSchemaId('orders-value');
  const written = await registry.encode(id, { id: 6, name: 'y' });
  console.log(JSON.stringify({ read, written: written.toString('hex') }));
})();
"""
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "name", "type": ["null", "string"], "default": None},
        ],
    }
)


def test_a_client_in_javascript_reads_and_writes(tmp_path: Path) -> None:
    """It finds the schema by the number in the message, and the latest by its subject."""
    install = [program("npm"), "install", "--silent", "--no-audit", "--no-fund", PACKAGE]
    subprocess.run(install, cwd=tmp_path, check=True, timeout=INSTALL_SECONDS_MAX)  # noqa: S603 (npm)
    (tmp_path / "client.js").write_text(SCRIPT)
    context = SerializationContext("orders", MessageField.VALUE)
    with (
        registry(tmp_path / "registry.db") as address,
        SchemaRegistryClient({"url": address, "timeout": 180}) as client,
    ):
        write = AvroSerializer(client, SCHEMA)
        content = write({"id": 5, "name": "x"}, context)
        assert content is not None
        done = subprocess.run(  # noqa: S603 (node, on a script of ours)
            [program("node"), "client.js", address, content.hex()],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
        )
        found = json.loads(done.stdout)

        assert {"id": 5, "name": "x"} == found["read"]
        assert write({"id": 6, "name": "y"}, context) == bytes.fromhex(found["written"])
