"""What the sink publishes and frames, by a registry of others and by ours, read by Java."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headrace.connector.commands.cli import main
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.recordings.corpora import recording
from helpers.servers.registries import registry
from real.servers.apicurio import apicurio
from real.servers.confluent import read_again

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=["apicurio", "embedded"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Run a registry."""
    folder = tmp_path_factory.mktemp("registry")
    if request.param == "apicurio":
        with apicurio(folder / "apicurio") as made:
            yield made
    else:
        with registry(folder / "registry.db") as made:
            yield made


@pytest.mark.parametrize("envelope", ["cep44", "debezium", "flat"])
def test_confluents_deserialisers_read_what_is_sent(
    tmp_path: Path, address: str, envelope: str
) -> None:
    """Java's finds all of every message, and what Python's finds."""
    broker = EmbeddedBroker()
    topic = f"read-{envelope}"
    source = {
        "plugin": "cassandra",
        "nodes": {"node1": str(recording("4.1-ops") / "segments")},
        "schema": str(recording("4.1-ops") / "schema.cql"),
        "consistency": "ONE",
        "splits": 1,
    }
    sink = {
        "plugin": "kafka",
        "bootstrap.servers": broker.bootstrap_servers,
        "topic": topic,
        "envelope": envelope,
        "schema.store": "registry",
        "schema.store.url": address,
        "schema.framing": "confluent",
        "subject.name.strategy": "TopicRecordNameStrategy",
    }
    job = {"job": "ops", "state": "state.db", "source": source, "sink": sink}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    run = ["--log-level", "error", "run", "--until-idle", str(tmp_path / "job.yaml")]
    assert 0 == main(run)
    values = [message.value() or b"" for message in consume(broker.bootstrap_servers, topic)]

    assert len(values) > 50
    assert {0} == {struct.unpack(">bI", value[:5])[0] for value in values}
    again = read_again(address, topic, values)
    with SchemaRegistryClient({"url": address, "timeout": 180}) as client:
        # Else it asks the registry for each message which subject it is of.
        read = AvroDeserializer(
            client, conf={"subject.name.strategy": topic_record_subject_name_strategy}
        )
        context = SerializationContext(topic, MessageField.VALUE)
        for value, by_java in zip(values, again, strict=True):
            found = read(value, context)
            assert isinstance(found, dict)
            assert found.keys() & {"operationType", "op", "__op"}
            # Java has another order for the entries of a map.
            assert value[5:] == by_java or found == read(value[:5] + by_java, context)
