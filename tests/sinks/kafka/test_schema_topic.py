"""The schema store `topic`."""

import pytest

from headrace.plugins import ConfigError, parse_config
from headrace.plugins.testing.doubles import sample_records
from headrace.sinks.kafka import schema_topic
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.schema_topic import SchemaTopicConfig, SchemaTopicError, TopicSchemaStore
from helpers.jobs.children import until
from helpers.jobs.deliveries import NO_BROKER, consume, context
from helpers.servers.kafka_node import KafkaNode

SCHEMA = sample_records(1)[0].schema


def store_of(servers: str, **given: str) -> TopicSchemaStore:
    """Return a store with *given* options; underscores in them stand for dots."""
    options = {"bootstrap.servers": servers, "topic": "schemas"}
    options |= {key.replace("_", "."): value for key, value in given.items()}
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


def test_a_value_that_librdkafka_refuses_is_a_config_error() -> None:
    """The library's own complaint becomes ours."""
    with pytest.raises(ConfigError, match="compression"):
        store_of(NO_BROKER, compression_type="zip")


def test_the_store_logs_in() -> None:
    """The broker sees who it is."""
    login = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN"}
    with KafkaNode(users={"u": "p"}) as node:
        made = store_of(node.bootstrap_servers, sasl_username="u", sasl_password="p", **login)  # noqa: S106 (a test's)
        until(lambda: bool(node.let_in), "nobody came")
        del made

    assert {"u"} == set(node.let_in)
