"""A sink's options of its connection become Faust's credentials."""

import ssl
from pathlib import Path

import pytest
from faust import auth

from headrace.connector.streams.connection import broker_of, credentials_of
from headrace.plugins import ConfigError, parse_config
from headrace.sinks.kafka.config import KafkaConfig

PASSWORD = "secret-word"  # noqa: S105 (a test's)


def config(**given: str) -> KafkaConfig:
    """Return the options of a sink; underscores in their names are dots."""
    options = {name.replace("_", "."): value for name, value in given.items()}
    made: KafkaConfig = parse_config(
        KafkaConfig, {"bootstrap.servers": "SSL://a:1, b:2", "topic": "t", **options}
    )
    return made


def test_brokers_are_those_of_the_sink() -> None:
    """Each broker is an address of Faust, with any protocol in librdkafka's address."""
    assert ["kafka://a:1", "kafka://b:2"] == broker_of(config().bootstrap_servers)


def test_a_plain_connection_has_no_credentials() -> None:
    """Without options of security there is nothing to show."""
    assert credentials_of(config()) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_over_tls(mechanism: str) -> None:
    """User, password and mechanism are passed on; names of brokers are checked."""
    found = credentials_of(
        config(
            security_protocol="SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_username="u",
            sasl_password=PASSWORD,
        )
    )

    assert isinstance(found, auth.SASLCredentials)
    assert ("u", PASSWORD, mechanism) == (found.username, found.password, found.mechanism.value)
    assert "SASL_SSL" == found.protocol.value
    assert found.ssl_context is not None
    assert found.ssl_context.check_hostname
    assert ssl.CERT_REQUIRED == found.ssl_context.verify_mode
    assert PASSWORD not in repr(found)


def test_checks_can_be_switched_off_as_in_librdkafka() -> None:
    """The name alone, or the certificate too."""
    off = {"ssl_endpoint_identification_algorithm": "none"}
    name_only = credentials_of(config(security_protocol="ssl", **off))
    nothing = credentials_of(
        config(security_protocol="ssl", enable_ssl_certificate_verification="false")
    )

    assert isinstance(name_only, auth.SSLCredentials)
    assert isinstance(nothing, auth.SSLCredentials)
    assert (False, ssl.CERT_REQUIRED) == (
        name_only.context.check_hostname,
        name_only.context.verify_mode,
    )
    assert ssl.CERT_NONE == nothing.context.verify_mode


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"security_protocol": "tls"}, "security.protocol"),
        ({"security_protocol": "sasl_ssl", "sasl_mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"security_protocol": "ssl", "ssl_keystore_location": "k.p12"}, "ssl.keystore.location"),
        ({"security_protocol": "ssl", "ssl_ca_location": "missing.pem"}, "ssl.ca.location"),
        (
            {"security_protocol": "ssl", "ssl_certificate_location": "missing.pem"},
            "ssl.certificate.location",
        ),
    ],
)
def test_what_faust_has_no_equal_for_is_named(
    options: dict[str, str], key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the option's name, and no password."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=key) as caught:
        credentials_of(config(sasl_password=PASSWORD, ssl_key_password=PASSWORD, **options))

    assert PASSWORD not in str(caught.value)
