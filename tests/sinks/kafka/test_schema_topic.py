"""The schema store `topic`."""

import pytest

from deliveries import NO_BROKER, consume, context
from headrace.plugins import parse_config
from headrace.plugins.testing.doubles import sample_records
from headrace.sinks.kafka import schema_topic
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.schema_topic import SchemaTopicConfig, SchemaTopicError, TopicSchemaStore

SCHEMA = sample_records(1)[0].schema


def store_of(servers: str) -> TopicSchemaStore:
    """Return a store."""
    options = {"bootstrap.servers": servers, "topic": "schemas"}
    return TopicSchemaStore(parse_config(SchemaTopicConfig, options), context())


def test_each_schema_is_a_message(broker: EmbeddedBroker) -> None:
    """Its key is subject and schema id, so that compaction keeps every schema once."""
    store_of(broker.bootstrap_servers).publish("s-value", '"long"', SCHEMA)

    (message,) = consume(broker.bootstrap_servers, "schemas")
    assert f"s-value/{SCHEMA.schema_id.hex()}".encode() == message.key()
    assert b'"long"' == message.value()
    assert [("schemaId", SCHEMA.schema_id)] == message.headers()


def test_a_topic_that_takes_nothing_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a bound of time."""
    monkeypatch.setattr(schema_topic, "_FLUSH_SECONDS", 1)

    with pytest.raises(SchemaTopicError):
        store_of(NO_BROKER).publish("s-value", '"long"', SCHEMA)
