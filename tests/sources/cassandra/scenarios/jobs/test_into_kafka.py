"""A recording through a worker into Kafka, read as consumers with a registry read it."""

import http.server
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headrace.connector.commands.cli import main
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.recordings.batches import recorded_batches
from helpers.recordings.corpora import recording
from helpers.servers.registries import answering, ask, registry

pytestmark = pytest.mark.long

TOPIC = "framed"


def plain(value: Any) -> Any:  # noqa: ANN401 (any datum)
    """Return a datum with strings in place of the objects that a reader made of them."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, int | float | bytes) else str(value)


def run(folder: Path, sink: Mapping[str, object]) -> None:
    """Run a job over recording 4.1-ops until it is idle."""
    write(folder, sink)
    arguments = ["run", "--until-idle", str(folder / "job.yaml")]
    assert 0 == main(["--log-level", "error", *arguments])


def write(folder: Path, sink: Mapping[str, object]) -> None:
    """Write the job file."""
    source = {
        "plugin": "cassandra",
        "nodes": {"node1": str(recording("4.1-ops") / "segments")},
        "schema": str(recording("4.1-ops") / "schema.cql"),
        "consistency": "ONE",
        "splits": 1,
    }
    job = {"job": "ops", "state": "state.db", "source": source, "sink": {"plugin": "kafka", **sink}}
    (folder / "job.yaml").write_text(json.dumps(job))


def said(broker: EmbeddedBroker, topic: str) -> set[tuple[bytes | None, bytes | None]]:
    """Return the keys and values of the messages of a topic."""
    return {(each.key(), each.value()) for each in consume(broker.bootstrap_servers, topic)}


def test_what_a_transform_failed_on_is_sent_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the transform is corrected all messages arrive as if it had always been right."""
    broker = EmbeddedBroker()
    sink = {"bootstrap.servers": broker.bootstrap_servers, "topic": "late", "envelope": "flat"}
    wrong = {"transforms": "t", "transforms.t.type": "TimestampConverter"}
    wrong |= {"transforms.t.field": "__op", "transforms.t.target.type": "unix"}
    mended = {"transforms": "t", "transforms.t.type": "InsertField"}
    mended |= {"transforms.t.static.field": "from", "transforms.t.static.value": "here"}
    (tmp_path / "other").mkdir()

    run(tmp_path, sink | wrong)
    assert set() == said(broker, "late")
    write(tmp_path, sink | mended)
    assert 0 == main(["dlq", "redrive", "--all", str(tmp_path / "job.yaml")])
    assert 50 < capsys.readouterr().out.count("delivered")
    run(tmp_path / "other", sink | mended | {"topic": "right"})

    assert said(broker, "right") == said(broker, "late")


def test_what_is_sent_again_waits_for_its_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A redriven record waits for the id of its schema, which the registry gives later."""
    broker = EmbeddedBroker()
    sink = {"bootstrap.servers": broker.bootstrap_servers, "topic": "framed-late"}
    sink |= {"envelope": "flat", "subject.name.strategy": "RecordNameStrategy", "transforms": "t"}
    sink |= {"schema.framing": "confluent", "schema.store": "registry"}
    sink |= {"transforms.t.type": "InsertField", "transforms.t.static.value": "x"}
    with registry(tmp_path / "registry.db") as address:
        sink["schema.store.url"] = address
        run(tmp_path, sink | {"transforms.t.static.field": "__op"})
        write(tmp_path, sink | {"transforms.t.static.field": "mine"})
        assert 0 == main(["dlq", "redrive", "--all", str(tmp_path / "job.yaml")])

    assert 50 < capsys.readouterr().out.count("delivered")


def test_confluents_deserializer_reads_every_message(tmp_path: Path) -> None:
    """Confluent's deserializer finds the schema by its id, and reads what was recorded."""
    broker = EmbeddedBroker()
    with registry(tmp_path / "registry.db") as address:
        sink = {
            "bootstrap.servers": broker.bootstrap_servers,
            "topic": TOPIC,
            "schema.store": "registry",
            "schema.store.url": address,
            "schema.framing": "confluent",
            "subject.name.strategy": "TopicRecordNameStrategy",
        }
        run(tmp_path, sink)
        with SchemaRegistryClient({"url": address, "timeout": 180}) as client:
            read = AvroDeserializer(client)
            pairs = []
            for message in consume(broker.bootstrap_servers, TOPIC):
                keys, values = (
                    SerializationContext(TOPIC, field)
                    for field in (MessageField.KEY, MessageField.VALUE)
                )
                pairs.append((read(message.key(), keys), read(message.value(), values)))

    expected = {
        (record.value["mutation"], record.value["index"]): (record.key, record.value)
        for batch in recorded_batches("4.1-ops")
        for record in batch.records()
    }
    found = {(value["mutation"], value["index"]): (key, value) for key, value in pairs}
    assert len(expected) > 50
    assert plain({str(k): list(v) for k, v in expected.items()}) == plain(
        {str(k): list(v) for k, v in found.items()}
    )


def test_a_registry_that_refuses_in_a_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has the registry's words, the records and the remedy; then the job continues."""
    broker = EmbeddedBroker()
    sink = {"bootstrap.servers": broker.bootstrap_servers, "topic": "closed"}
    sink |= {"schema.store": "registry", "schema.framing": "confluent"}
    sink["subject.name.strategy"] = "RecordNameStrategy"
    asked: list[str] = []

    def once(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        handler.send_response(200 if len(asked) <= len(("key", "value")) else 403)
        handler.end_headers()
        handler.wfile.write(b'{"id": 7, "message": "the licence has ended"}')

    with answering(once) as address:
        write(tmp_path, sink | {"schema.store.url": address})
        file = tmp_path / "job.yaml"
        runtime = {"runtime": {"retry_seconds_max": 2}}
        file.write_text(json.dumps(json.loads(file.read_text()) | runtime))
        assert 1 == main(["--log-level", "error", "run", "--until-idle", str(file)])
    said_of_it = capsys.readouterr().err
    assert f"registry_forbidden: {address}: HTTP 403: the licence has ended" in said_of_it
    assert "check the address, user and password. Nothing is lost" in said_of_it
    with registry(tmp_path / "registry.db") as address:
        run(tmp_path, sink | {"schema.store.url": address})
    assert len(said(broker, "closed")) > 50


def test_a_registry_that_only_reads_is_not_called_incompatible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hint names the registry's mode, since no level of compatibility helps."""
    broker = EmbeddedBroker()
    sink = {"bootstrap.servers": broker.bootstrap_servers, "topic": "read-only"}
    sink |= {"schema.store": "registry", "schema.framing": "confluent"}
    with registry(tmp_path / "registry.db") as address:
        assert 200 == ask(address, "PUT", "/mode", {"mode": "READONLY"})[0]
        sink["schema.store.url"] = address
        write(tmp_path, sink)
        command = ["--log-level", "error", "run", "--until-idle", str(tmp_path / "job.yaml")]
        assert 1 == main(command)
        said_of_it = capsys.readouterr().err
        assert "is in read-only mode" in said_of_it
        assert "allow it at the store (compatibility level or mode of subject " in said_of_it
        assert "Nothing is lost" in said_of_it
        assert 200 == ask(address, "PUT", "/mode", {"mode": "READWRITE"})[0]
        run(tmp_path, sink)
    assert len(said(broker, "read-only")) > 50


def printed(page: str) -> list[dict[str, Any]]:
    """Return the Kafka sinks of the examples on a page."""
    text = (Path(__file__).parents[5] / "docs" / page).read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    sinks = [block.get("sink", block) for block in blocks if isinstance(block, dict)]
    return [sink for sink in sinks if isinstance(sink, dict) and sink.get("plugin") == "kafka"]


@pytest.mark.parametrize("topic", [None, "all"], ids=["as printed", "one topic"])
@pytest.mark.parametrize("sink", [sink for sink in printed("kafka.md") if "schema.store" in sink])
def test_sinks_of_the_pages_publish_every_table(
    tmp_path: Path, sink: dict[str, Any], topic: str | None
) -> None:
    """The examples of the pages work as printed, and with one topic for all tables."""
    broker = EmbeddedBroker()
    if topic is not None:
        sink = {**sink, "topic": topic}
    with registry(tmp_path / "registry.db") as address:
        places = {"bootstrap.servers": broker.bootstrap_servers, "schema.store.url": address}
        run(tmp_path, sink | places)
        _, subjects = ask(address, "GET", "/subjects")

    tables = {each.table for b in recorded_batches("4.1-ops") for each in b.schemas()}
    one = {f"all-headrace.{table}.{part}" for table in tables for part in ("Key", "Change")}
    own = {f"cdc.{table}-{part}" for table in tables for part in ("key", "value")}
    assert len(tables) > 1
    assert (own if topic is None else one) == set(subjects)
