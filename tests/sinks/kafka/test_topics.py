"""Where a table's records go."""

import pytest
from confluent_kafka import KafkaError

from headrace.plugins import ConfigError, Delivery, EncodedRecords, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.kafka.clients import new_client
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.failures import BrokerUnreachableError, TopicMissingError
from headrace.sinks.kafka.topics import Topics
from helpers.jobs.deliveries import Results, SystemClock, consume, context, delivery_of, drained
from helpers.servers.kafka_node import KafkaNode, Ordered


def topics_of(**options: str) -> Topics:
    """Return the topics of a sink; underscores in keys stand for dots."""
    given = {key.replace("_", "."): value for key, value in options.items()}
    config = parse_config(KafkaConfig, {"bootstrap.servers": "h:1", **given})
    return Topics(config, SystemClock(), "here")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({"topic": "all"}, "all", id="static"),
        pytest.param({"topic": "{keyspace}"}, "shop", id="keyspace"),
        pytest.param({"topic": "{table}"}, "orders", id="table"),
        pytest.param({"topic": "cdc.{keyspace}.{table}"}, "cdc.shop.orders", id="both"),
        pytest.param({"topic": "x", "topic_map_shop_orders": "mine"}, "mine", id="mapped"),
        pytest.param({"topic": "{table}", "topic_map_shop_users": "y"}, "orders", id="not mapped"),
    ],
)
def test_a_topic_is_made_of_the_tables_name(options: dict[str, str], expected: str) -> None:
    """O01: the forms CEP-44 has: static, keyspace, table, both, and a map."""
    assert expected == topics_of(**options).of("shop.orders")


def test_a_table_without_a_keyspace_is_all_of_its_name() -> None:
    """Sources other than Cassandra have no keyspaces."""
    assert "-lines" == topics_of(topic="{keyspace}-{table}").of("lines")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "a"}, "a"),
        ({"topic": "{table}"}, None),
        ({"topic": "a", "topic_map_ks_t": "b"}, None),
    ],
)
def test_one_topic_for_all_is_known_beforehand(
    options: dict[str, str], expected: str | None
) -> None:
    """Only without a pattern and a map."""
    assert expected == topics_of(**options).fixed


@pytest.mark.parametrize("topic", ["{tabel}", "{keyspace", "a b", "{table} "])
def test_a_wrong_pattern_is_refused(topic: str) -> None:
    """What is not a placeholder must be characters of a topic's name."""
    with pytest.raises(ConfigError) as caught:
        topics_of(topic=topic)

    assert ["topic"] == [problem.key for problem in caught.value.problems]


def test_records_go_to_the_topics_of_their_tables(broker: EmbeddedBroker, way: str) -> None:
    """One delivery may hold several tables; each record's message is in its table's topic."""
    given = {"bootstrap.servers": broker.bootstrap_servers, "topic": f"{way}.{{table}}"}
    writer = KafkaSink(parse_config(KafkaConfig, given), context()).open()
    tables = ["ks.one", "ks.two", "ks.one", "ks.two", "ks.two"]
    plain = delivery_of(*((b"k", str(n).encode()) for n in range(len(tables)))).encoded
    encoded = EncodedRecords(plain.keys, plain.values, [()] * len(tables), tables)
    results = Results()

    writer.submit(Delivery(delivery_of().batch, encoded), results)

    assert drained(writer)
    assert [(range(5), [])] == results.all
    servers = broker.bootstrap_servers
    assert [b"0", b"2"] == [m.value() for m in consume(servers, f"{way}.one")]
    assert [b"1", b"3", b"4"] == [m.value() for m in consume(servers, f"{way}.two")]


@pytest.mark.usefixtures("way")
def test_missing_topics_are_made_as_asked() -> None:
    """Partitions, replication and settings are as asked; dead letters have their own."""
    given = {
        "topic": "changes",
        "topic.creation.enable": "true",
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "2",
        "topic.creation.default.retention.ms": "77",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.topic.replication.factor": "5",
    }
    with KafkaNode() as node:
        config = parse_config(KafkaConfig, given | {"bootstrap.servers": node.bootstrap_servers})
        client = new_client(config.producer_config(), lambda _error: None, place="here")
        Topics(config, SystemClock(), "here").make_ready(["changes", "dead"], client, lambda: None)
        client.close()

    settings = {"retention.ms": "77"}
    assert {"changes": Ordered(3, 2, settings), "dead": Ordered(3, 5, settings)} == node.ordered


@pytest.mark.usefixtures("way")
def test_topics_are_not_made_unasked() -> None:
    """A topic that is missing is waited for, so long as a connection may take."""
    given = {"topic": "changes", "connect.timeout.ms": "300"}
    with KafkaNode() as node:
        config = parse_config(KafkaConfig, given | {"bootstrap.servers": node.bootstrap_servers})
        with pytest.raises(TopicMissingError, match="within 300 ms"):
            KafkaSink(config, context()).open()

    assert {} == node.ordered


@pytest.mark.usefixtures("way")
def test_a_topic_without_a_leader_is_not_called_missing() -> None:
    """It is there: what helps is its brokers, and not to create it."""
    given = {"topic": "changes", "connect.timeout.ms": "300", "topic.creation.enable": "true"}
    with KafkaNode(topic_error=KafkaError.LEADER_NOT_AVAILABLE) as node:
        config = parse_config(KafkaConfig, given | {"bootstrap.servers": node.bootstrap_servers})
        with pytest.raises(BrokerUnreachableError, match="is there, but had no leader") as caught:
            KafkaSink(config, context()).open()

    assert f"--bootstrap-server {node.bootstrap_servers} --describe --topic changes`" in (
        caught.value.hint
    )
    assert "start again. Nothing is lost" in caught.value.hint
    assert {} == node.ordered


def test_a_broker_that_creates_no_topics(broker: EmbeddedBroker) -> None:
    """The embedded broker does not answer requests to create them: the hint says what to do."""
    given = {"topic": "made", "connect.timeout.ms": "300", "topic.creation.enable": "true"}
    config = parse_config(KafkaConfig, given | {"bootstrap.servers": broker.bootstrap_servers})
    with pytest.raises(TopicMissingError, match=r"made was not made within 0\.3 s") as caught:
        KafkaSink(config, context()).open()

    assert "leave topic.creation.enable out" in caught.value.hint
