"""Converts the options of a job's sink to connection settings of Faust."""

import ssl
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

import faust
from faust import auth
from faust.types.auth import CredentialsT

from headrace.plugins import ConfigError, Problem, Sink

_PROTOCOL: Final = "security.protocol"
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
# Keys of librdkafka for which Python's `ssl` has no equivalent.
_UNKNOWN_TO_PYTHON: Final = (
    *("ssl.crl.location", "ssl.keystore.location", "ssl.curves.list", "ssl.sigalgs.list"),
)
RAW: Final[dict[str, Any]] = {  # Any: of a Faust schema.
    "key_type": bytes,
    "value_type": bytes,
    "key_serializer": "raw",
    "value_serializer": "raw",
}
Hosts = list[str]


def app_beside(sink: Sink, name: str, **settings: Any) -> faust.App:  # noqa: ANN401 (Faust's)
    """Return an app with a sink's brokers and credentials; *name* is its group.

    *settings* are Faust's. By default its web server listens on loopback.

    Raises:
        ConfigError: Faust has no equivalent of an option of the connection.

    """
    config: Any = sink.config  # Any: of the sink's plugin.
    settings.setdefault("broker_credentials", credentials_of(config))
    # A part of an incomplete value stays unacknowledged; stopping does not wait for others.
    settings.setdefault("stream_wait_empty", False)
    settings.setdefault("web_host", "127.0.0.1")
    settings.setdefault("web_bind", "127.0.0.1")
    return faust.App(name, broker=broker_of(config.bootstrap_servers), **settings)


def table_of_bytes(app: faust.App, name: str, partitions: int) -> MutableMapping[bytes, bytes]:
    """Return a table of *app* for bytes."""
    # The store takes serialisers from the types, the changelog from the schema.
    schema: Any = faust.Schema(**RAW)  # Any: of bytes, unlike its types.
    return app.Table(name, partitions=partitions, schema=schema, key_type=bytes, value_type=bytes)


def broker_of(bootstrap_servers: str) -> Hosts:
    """Return Faust's addresses of the brokers."""
    servers = [server.strip().rpartition("://")[2] for server in bootstrap_servers.split(",")]
    return [f"kafka://{server}" for server in servers]


def credentials_of(sink_config: Any) -> CredentialsT | None:  # noqa: ANN401 (of a plugin)
    """Return Faust's credentials for options of the Kafka sink, or None without any.

    Raises:
        ConfigError: Faust has no equivalent of an option's value. No value is repeated.

    """
    given: Mapping[str, str] = sink_config.librdkafka
    protocol = given.get(_PROTOCOL, _PROTOCOLS[0]).lower()
    if protocol not in _PROTOCOLS:
        hint = ", ".join(_PROTOCOLS)
        raise ConfigError([Problem(_PROTOCOL, "is not a protocol", hint)])
    context = _tls(given, sink_config.ssl_key_password) if protocol.endswith("ssl") else None
    if protocol.startswith("sasl"):
        mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "GSSAPI"))
        if mechanism not in _MECHANISMS:
            hint = f"{', '.join(_MECHANISMS)}; for others give credentials to app()"
            raise ConfigError([Problem("sasl.mechanism", "has no equal in Faust", hint)])
        return auth.SASLCredentials(
            username=given.get("sasl.username"),
            password=sink_config.sasl_password,
            ssl_context=context,
            mechanism=mechanism,
        )
    return None if context is None else auth.SSLCredentials(context)


def _tls(given: Mapping[str, str], key_password: str | None) -> ssl.SSLContext:
    """Return the settings of TLS connections: whom they trust, and their certificate."""
    problems = [
        Problem(key, "has no equal in Python's ssl", "give files in PEM, or credentials to app()")
        for key in _UNKNOWN_TO_PYTHON
        if key in given
    ]
    if problems:
        raise ConfigError(problems)
    place = "ssl.ca.location"
    try:
        made = ssl.create_default_context(cafile=given.get(place))
        certificate = given.get("ssl.certificate.location")
        if certificate is not None:
            place = "ssl.certificate.location"
            # A password is always given: Python would ask for a missing one on the terminal.
            password: Callable[[], str] = lambda: key_password or ""  # noqa: E731 (typed)
            made.load_cert_chain(certificate, given.get("ssl.key.location"), password)
        if "ssl.cipher.suites" in given:
            place = "ssl.cipher.suites"
            made.set_ciphers(given[place])
    except (OSError, ssl.SSLError) as error:  # An SSLError does not repeat the password.
        problem = Problem(place, f"cannot be used: {error}", "files in PEM, readable by this user")
        raise ConfigError([problem]) from error
    # As in librdkafka: the name is checked unless that is switched off.
    if given.get("ssl.endpoint.identification.algorithm", "https") == "none":
        made.check_hostname = False
    if given.get("enable.ssl.certificate.verification", "true") == "false":
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
