"""Options of the Kafka sink: what is refused, and the options of librdkafka."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from headrace.connector.commands.exec import main
from headrace.plugins import CheckResult, ConfigError, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink, KafkaWriter
from helpers.jobs.deliveries import context
from helpers.servers.authority import Authority
from helpers.servers.kafka_node import KafkaNode

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
        pytest.param({"retries": "3"}, "retries", id="retries"),
        pytest.param({"key.serializer": "x.StringSerializer"}, "key.serializer", id="serializer"),
        pytest.param({"value.converter": "x.AvroConverter"}, "value.converter", id="converter"),
        pytest.param({"plugin.library.paths": "/x.so"}, "plugin.library.paths", id="a library"),
        pytest.param({"sasl.kerberos.kinit.cmd": "x"}, "sasl.kerberos.kinit.cmd", id="a program"),
        pytest.param({"ssl.engine.location": "/x.so"}, "ssl.engine.location", id="an engine"),
        pytest.param({"message.max.bytes": "1MiB"}, "message.max.bytes", id="no number"),
        pytest.param({"large.bytes": "995905"}, "large.bytes", id="no room for it"),
        pytest.param({"schema.store.url": "http://h"}, "schema.store.url", id="no schema store"),
        pytest.param({"schema.framing": "confluent"}, "schema.framing", id="no numbers"),
        pytest.param({"test.mock.num.brokers": "3"}, "test.mock.num.brokers", id="the mock"),
        pytest.param(
            {"exactly.once": "true", "offsets.storage.topic": "changes"},
            "offsets.storage.topic",
            id="positions among records",
        ),
        pytest.param(
            {"exactly.once": "true", "topic.map.shop.orders": "headrace-offsets"},
            "offsets.storage.topic",
            id="records among positions",
        ),
    ],
)
def test_one_wrong_option_is_one_problem(given: dict[str, str], key: str) -> None:
    """Each mistake is one problem under its key."""
    with pytest.raises(ConfigError) as caught:
        parse_config(KafkaConfig, GIVEN | given)

    assert [key] == [problem.key for problem in caught.value.problems]


@pytest.mark.parametrize(("bound", "taken"), [("8192", 4096), ("5000", 2500), ("", 995_904)])
def test_a_large_value_leaves_room(bound: str, taken: int) -> None:
    """`large.bytes` may be what a message has for its value, and no more; the hint says which."""
    given = GIVEN | ({"message.max.bytes": bound} if bound else {})

    assert taken == parse_config(KafkaConfig, given | {"large.bytes": str(taken)}).value_bytes_max
    with pytest.raises(ConfigError, match=f"at most {taken}") as caught:
        parse_config(KafkaConfig, given | {"large.bytes": str(taken + 1)})
    assert f"message.max.bytes: {taken + 4_097}," in caught.value.hint


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, None),
        ({"large.policy": "fail", "large.policy.ks.t": "truncate"}, None),
        ({"large.policy": "chunk", "large.policy.ks.t": "fail"}, 995_904),
        ({"large.policy.ks.t": "chunk"}, 995_904),
    ],
)
def test_values_are_measured_where_some_are_sent_in_parts(
    more: dict[str, str], expected: int | None
) -> None:
    """With the policy `chunk`, of the sink or of a table."""
    assert expected == parse_config(KafkaConfig, GIVEN | more).chunk_bytes


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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("acks", "all"),
        ("acks", "-1"),
        ("request.required.acks", "all"),
        ("enable.idempotence", "true"),
        ("retries", "2147483647"),
        ("message.send.max.retries", "2147483647"),
        ("partitioner", "murmur2_random"),
        ("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer"),
        ("value.serializer", "org.apache.kafka.common.serialization.BytesSerializer"),
    ],
)
def test_an_option_may_state_what_the_sink_does_anyway(key: str, value: str) -> None:
    """The value that says so is accepted and changes nothing; another is refused with a reason."""
    without = parse_config(KafkaConfig, GIVEN).producer_config()

    assert without == parse_config(KafkaConfig, GIVEN | {key: value}).producer_config()
    with pytest.raises(ConfigError, match=f"{key}: can only be ") as caught:
        parse_config(KafkaConfig, GIVEN | {key: "canary"})
    assert "leave it out" == caught.value.hint
    assert "canary" not in str(caught.value)


def test_ceps_example_is_a_statement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A URI without quotes, with `acks=all` makes a sink; `acks=1` is refused with a reason."""
    state = str(tmp_path / "state.db")
    text = "CREATE DATA_SINK {} WITH kafka://localhost:9092?topic=cdc&acks={};"

    assert 0 == main(["--state", state, "-e", text.format("k", "all") + " DESCRIBE DATA_SINKS"])
    assert '"name": "k"' in capsys.readouterr().out
    assert 2 == main(["--state", state, "-e", text.format("l", "1")])
    assert "acks: can only be all here: a record counts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("securty.protocol", "did you mean security.protocol? `headrace options kafka` lists all"),
        ("ackz", "did you mean acks? `headrace options kafka` lists all"),
        ("max.request.size", "give message.max.bytes"),
        ("zzz", "`headrace options kafka` lists all"),
    ],
)
def test_an_unknown_option_is_answered_with_one_name(key: str, hint: str) -> None:
    """The hint names the option that was probably meant, and how to list the others."""
    with pytest.raises(ConfigError) as caught:
        parse_config(KafkaConfig, GIVEN | {key: "x"}, name="kafka")

    assert caught.value.hint.startswith(hint)


def test_a_value_that_librdkafka_refuses_is_a_config_error() -> None:
    """The library's own complaint becomes ours, with a place."""
    config = parse_config(KafkaConfig, GIVEN | {"compression.type": "zip"})

    with pytest.raises(ConfigError, match=r"compression") as caught:
        KafkaWriter(config, context())

    assert caught.value.place == "kafka://h1:1,h2:2?topic=changes"


@pytest.mark.parametrize("right", [True, False])
def test_the_password_of_a_user_is_shown(*, right: bool) -> None:
    """The broker sees it, and lets in whom it knows."""
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
    login |= {"sasl.username": "u", "sasl.password": "right" if right else "wrong"}
    with KafkaNode(users={"u": "right"}) as node:
        given = {"bootstrap.servers": node.bootstrap_servers, "connect.timeout.ms": "500"}
        config = parse_config(KafkaConfig, GIVEN | given | login)
        connection, *_ = KafkaSink(config, context()).check()

    assert right is (connection.result is CheckResult.PASSED)
    assert right is bool(node.let_in)


@pytest.mark.parametrize("key", ["ssl.key", "ssl.keystore"])
@pytest.mark.parametrize("right", [True, False])
def test_the_password_of_a_key_opens_it(tmp_path: Path, key: str, *, right: bool) -> None:
    """What it does not open is a mistake in the options."""
    certificate, plain = Authority(tmp_path, "ca").issue("client")
    given = {"security.protocol": "ssl", f"{key}.password": "right" if right else "wrong"}
    given[f"{key}.location"] = str(tmp_path / "sealed")
    private = load_pem_private_key(plain.read_bytes(), None)
    sealing = BestAvailableEncryption(b"right")
    if key == "ssl.key":
        given["ssl.certificate.location"] = str(certificate)
        sealed = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealing)
    else:
        own = load_pem_x509_certificate(certificate.read_bytes())
        assert isinstance(private, EllipticCurvePrivateKey)
        sealed = serialize_key_and_certificates(b"client", private, own, None, sealing)
    (tmp_path / "sealed").write_bytes(sealed)
    config = parse_config(KafkaConfig, GIVEN | {"bootstrap.servers": "127.0.0.1:1"} | given)

    if right:
        KafkaWriter(config, context()).close()
    else:
        with pytest.raises(ConfigError):
            KafkaWriter(config, context())


def test_a_uri_names_the_servers() -> None:
    """The middle of `kafka://h1:1,h2:2?topic=x` is `bootstrap.servers`."""
    assert {"bootstrap.servers": "h1:1,h2:2"} == KafkaSink.config_of_uri("h1:1,h2:2", "")


def test_a_uri_with_a_path_is_refused_with_the_right_form() -> None:
    """A topic written as a path is a mistake whose hint is the query key."""
    with pytest.raises(ConfigError) as caught:
        KafkaSink.config_of_uri("h1:1", "/orders")

    assert caught.value.hint == "name the topic as ?topic=orders"
