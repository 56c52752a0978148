"""Options of the Kafka sink: what is refused, and what librdkafka is told."""

import pytest

from deliveries import context
from headrace.plugins import ConfigError, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink, KafkaWriter

GIVEN = {"bootstrap.servers": "h1:1,h2:2", "topic": "changes"}


@pytest.mark.parametrize(
    ("given", "key"),
    [
        pytest.param({"bootstrap.servers": "h1:port"}, "bootstrap.servers", id="port not a number"),
        pytest.param({"bootstrap.servers": "h1:65536"}, "bootstrap.servers", id="port too high"),
        pytest.param({"bootstrap.servers": "h1:0"}, "bootstrap.servers", id="port zero"),
        pytest.param({"bootstrap.servers": ""}, "bootstrap.servers", id="no server"),
        pytest.param({"bootstrap.servers": "h1:1,"}, "bootstrap.servers", id="half a list"),
        pytest.param({"bootstrap.servers": "kafka://h1:1"}, "bootstrap.servers", id="a URI"),
        pytest.param({"topic": "a b"}, "topic", id="space in topic"),
        pytest.param({"topic": "x" * 250}, "topic", id="long topic"),
        pytest.param({"topic": ".."}, "topic", id="reserved topic"),
        pytest.param({"format": "arvo"}, "format", id="format"),
        pytest.param({"acks": "1"}, "acks", id="a promise"),
        pytest.param({"enable.idempotence": "false"}, "enable.idempotence", id="another promise"),
        pytest.param({"partitioner": "random"}, "partitioner", id="the partitioner"),
        pytest.param({"plugin.library.paths": "/x.so"}, "plugin.library.paths", id="a library"),
        pytest.param({"sasl.kerberos.kinit.cmd": "x"}, "sasl.kerberos.kinit.cmd", id="a program"),
        pytest.param({"ssl.engine.location": "/x.so"}, "ssl.engine.location", id="an engine"),
        pytest.param({"test.mock.num.brokers": "3"}, "test.mock.num.brokers", id="the mock"),
    ],
)
def test_one_wrong_option_is_one_problem(given: dict[str, str], key: str) -> None:
    """Each mistake is one problem under its key."""
    with pytest.raises(ConfigError) as caught:
        parse_config(KafkaConfig, GIVEN | given)

    assert [key] == [problem.key for problem in caught.value.problems]


@pytest.mark.parametrize(
    "servers", ["h1", "h1:1", "[::1]:9092", "SASL_SSL://h1:9092", "10.0.0.1:65535, h2"]
)
def test_servers_have_many_forms(servers: str) -> None:
    """A port, brackets and a protocol are optional."""
    config = parse_config(KafkaConfig, GIVEN | {"bootstrap.servers": servers})

    assert servers == config.producer_config()["bootstrap.servers"]


def test_what_the_sink_promises_is_explicit() -> None:
    """Acknowledgement by all, idempotence and Java's partitioner are always set."""
    given = {"linger.ms": "7", "compression.type": "lz4", "sasl.password": "hidden"}

    options = parse_config(KafkaConfig, GIVEN | given).producer_config()

    assert {
        "acks": "all",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
        "bootstrap.servers": "h1:1,h2:2",
        "linger.ms": "7",
        "compression.type": "lz4",
        "sasl.password": "hidden",
    }.items() <= options.items()


def test_a_value_that_librdkafka_refuses_is_a_config_error() -> None:
    """The library's own complaint becomes ours, with a place."""
    config = parse_config(KafkaConfig, GIVEN | {"compression.type": "zip"})

    with pytest.raises(ConfigError, match=r"compression") as caught:
        KafkaWriter(config, context())

    assert caught.value.place == "kafka://h1:1,h2:2?topic=changes"


def test_a_uri_names_the_servers() -> None:
    """The middle of `kafka://h1:1,h2:2?topic=x` is `bootstrap.servers`."""
    assert {"bootstrap.servers": "h1:1,h2:2"} == KafkaSink.config_of_uri("h1:1,h2:2", "")


def test_a_uri_with_a_path_is_refused_with_the_right_form() -> None:
    """A topic written as a path is a mistake whose hint is the query key."""
    with pytest.raises(ConfigError) as caught:
        KafkaSink.config_of_uri("h1:1", "/orders")

    assert caught.value.hint == "name the topic as ?topic=orders"
