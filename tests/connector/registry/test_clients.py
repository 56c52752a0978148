"""Other people's clients use the embedded registry as they use Confluent's."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext
from schema_registry.client import SchemaRegistryClient as OtherClient
from schema_registry.client.schema import AvroSchema
from schema_registry.serializers.message_serializer import AvroMessageSerializer

from helpers.servers.registries import registry

Fields = list[dict[str, object]]

FIELDS: Fields = [{"name": "id", "type": "long"}]
WIDER: Fields = [*FIELDS, {"name": "v", "type": ["null", "string"], "default": None}]
BROKEN: Fields = [*FIELDS, {"name": "must", "type": "string"}]


def row(fields: Fields) -> str:
    """Return the schema of a record."""
    return json.dumps({"type": "record", "name": "Row", "fields": fields})


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty registry."""
    with registry(tmp_path / "registry.db") as made:
        yield made


@pytest.fixture
def client(address: str) -> Iterator[SchemaRegistryClient]:
    """Return Confluent's client of it."""
    with SchemaRegistryClient({"url": address, "timeout": 180}) as made:
        yield made


def test_confluents_serializers_understand_each_other(client: SchemaRegistryClient) -> None:
    """What one writes the other reads, by the id in the first five bytes."""
    context = SerializationContext("orders", MessageField.VALUE)
    content = AvroSerializer(client, row(WIDER))({"id": 5, "v": "x"}, context)

    assert content is not None
    assert b"\x00\x00\x00\x00\x01" == content[:5]
    assert {"id": 5, "v": "x"} == AvroDeserializer(client)(content, context)
    assert ["orders-value"] == client.get_subjects()


def test_confluents_client_finds_what_it_registered(client: SchemaRegistryClient) -> None:
    """By id, by version, as the latest, and by the schema itself."""
    first = client.register_schema("s", Schema(row(FIELDS), "AVRO"))
    second = client.register_schema("s", Schema(row(WIDER), "AVRO"))

    assert (1, 2) == (first, second)
    assert [1, 2] == client.get_versions("s")
    assert json.loads(row(FIELDS)) == json.loads(client.get_schema(first).schema_str or "")
    assert (second, 2) == (
        client.get_latest_version("s").schema_id,
        client.get_latest_version("s").version,
    )
    assert 1 == client.lookup_schema("s", Schema(row(FIELDS), "AVRO")).version


def test_what_is_incompatible_is_refused(client: SchemaRegistryClient) -> None:
    """By default a schema must read what the one before wrote."""
    client.register_schema("s", Schema(row(FIELDS), "AVRO"))

    assert not client.test_compatibility("s", Schema(row(BROKEN), "AVRO"))
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema("s", Schema(row(BROKEN), "AVRO"))
    assert 409 == caught.value.http_status_code
    client.set_compatibility("s", "NONE")
    assert 2 == client.register_schema("s", Schema(row(BROKEN), "AVRO"))


def test_another_client_reads_what_confluents_wrote(
    address: str, client: SchemaRegistryClient
) -> None:
    """The wire format and the registry's answers are everybody's."""
    context = SerializationContext("orders", MessageField.VALUE)
    content = AvroSerializer(client, row(WIDER))({"id": 5, "v": "x"}, context)
    other = AvroMessageSerializer(OtherClient(url=address))

    assert content is not None
    assert {"id": 5, "v": "x"} == other.decode_message(content)
    made = other.encode_record_with_schema("orders-value", AvroSchema(row(WIDER)), {"id": 6})
    assert {"id": 6, "v": None} == AvroDeserializer(client)(made, context)
