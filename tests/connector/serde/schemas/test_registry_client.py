"""The schema store `registry`, with the embedded registry and without one."""

import http.server
import json
import ssl
import threading
from base64 import b64encode
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.connector.serde.schemas.registry_client import (
    RegistryConfig,
    RegistryForbiddenError,
    RegistrySchemaStore,
    RegistryUnavailableError,
)
from headrace.plugins import (
    CheckResult,
    ConfigError,
    Finding,
    SchemaRefusedError,
    hosts,
    parse_config,
)
from headrace.plugins.diagnosis import Examined
from headrace.plugins.testing.doubles import context, sample_records
from helpers.jobs.children import SECONDS_MAX
from helpers.servers.authority import Authority
from helpers.servers.registries import answering, ask, registry

SCHEMA = sample_records(1)[0].schema
PASSED, FAILED = CheckResult.PASSED, CheckResult.FAILED
NOWHERE = "http://127.0.0.1:1"


def store_of(url: str, **options: object) -> RegistrySchemaStore:
    """Return a store."""
    return RegistrySchemaStore(parse_config(RegistryConfig, {"url": url, **options}), context())


def test_a_schema_gets_the_registrys_number_and_guid(tmp_path: Path) -> None:
    """Publishing a schema again gives the same number, and subjects may have any name."""
    with registry(tmp_path / "registry.db") as address:
        store = store_of(address)
        text = json.dumps(SCHEMA.value)

        made = store.publish("a/b c-value", text, SCHEMA)

        assert made == store.publish("a/b c-value", text, SCHEMA)
        assert (200, ["a/b c-value"]) == ask(address, "GET", "/subjects")
        assert 1 == made.number
        assert made.guid is not None
        assert 16 == len(made.guid)


def test_an_incompatible_schema_is_refused(tmp_path: Path) -> None:
    """An incompatible schema is rejected, with the registry's reason."""
    with registry(tmp_path / "registry.db") as address:
        store = store_of(address)
        store.publish("s", '"long"', SCHEMA)

        with pytest.raises(SchemaRefusedError, match="reader type string cannot read writer type"):
            store.publish("s", '"string"', SCHEMA)


def findings(url: str, **subjects: list[str]) -> list[Finding]:
    """Return what a diagnosis of the store finds about *subjects*."""
    (check,) = store_of(url).checks(Examined(subjects=subjects))
    return list(check.run())


def test_a_subject_of_several_tables(tmp_path: Path) -> None:
    """It is a failure unless its level is NONE: the second table's schema would be refused."""
    with registry(tmp_path / "registry.db") as address:
        answers, one, two = findings(address, one=["s.t"], two=["s.t", "s.u"])
        assert [PASSED, PASSED, FAILED] == [answers.result, one.result, two.result]
        assert "compatibility BACKWARD, and tables s.t, s.u share it" in two.message
        assert "TopicRecordNameStrategy" in two.hint
        assert 200 == ask(address, "PUT", "/config/two", {"compatibility": "NONE"})[0]
        assert [PASSED] * 2 == [each.result for each in findings(address, two=["s.t", "s.u"])]


def test_a_subject_that_is_read_only(tmp_path: Path) -> None:
    """A subject in which nothing can be registered is a failure."""
    with registry(tmp_path / "registry.db") as address:
        assert 200 == ask(address, "PUT", "/mode/one", {"mode": "READONLY"})[0]
        _, one, other = findings(address, one=["s.t"], other=["s.t"])

    assert (FAILED, PASSED) == (one.result, other.result)
    assert "READONLY" in one.message


def test_a_registry_that_does_not_answer() -> None:
    """It is one failure, with its address."""
    (found,) = findings(NOWHERE, one=["s.t"])

    assert (FAILED, True) == (found.result, NOWHERE in found.message)


def test_addresses_are_asked_in_turn(tmp_path: Path) -> None:
    """If an address does not answer the next one is tried; if none answers it is retried."""
    with registry(tmp_path / "registry.db") as address:
        assert 1 == store_of(f"{NOWHERE}, {address}/").publish("s", '"long"', SCHEMA).number
    with pytest.raises(RegistryUnavailableError):
        store_of(NOWHERE).publish("s", '"long"', SCHEMA)


def test_what_is_not_a_registry_is_not_retried(tmp_path: Path) -> None:
    """An address that is not a schema registry is an error that is not retried."""
    with registry(tmp_path / "registry.db") as address, pytest.raises(RegistryForbiddenError):
        store_of(f"{address}/nothing/here").publish("s", '"long"', SCHEMA)


@pytest.mark.parametrize("url", ["", "localhost:8081", "ftp://h", "http://", "http://user:pw@h"])
def test_a_wrong_address_is_refused(url: str) -> None:
    """Invalid addresses are refused, also those with a password, which has its own option."""
    with pytest.raises(ConfigError):
        store_of(url)


def registered(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Answer every schema with the number 7."""
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):  # The client may be gone.
        handler.wfile.write(b'{"id": 7}')


@pytest.mark.parametrize(
    ("login", "let_in"),
    [
        ({"user": "u", "password": "p"}, True),
        ({"user": "u", "password": "q"}, False),
        ({"user": "v", "password": "p"}, False),
        ({}, False),
    ],
)
def test_users_show_a_password(login: dict[str, str], *, let_in: bool) -> None:
    """User and password are sent as HTTP basic authentication."""

    def ask_who(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.headers["Authorization"] == f"Basic {b64encode(b'u:p').decode()}":
            registered(handler)
        else:
            handler.send_error(401)

    with answering(ask_who) as address:
        store = store_of(address, **login)
        if let_in:
            assert 7 == store.publish("s", '"long"', SCHEMA).number
        else:
            with pytest.raises(RegistryForbiddenError, match="HTTP 401"):
                store.publish("s", '"long"', SCHEMA)


def test_certificates_are_checked(tmp_path: Path) -> None:
    """A certificate of an unknown authority is refused and named."""
    authority = Authority(tmp_path, "ca")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.issue("registry"))
    with answering(registered, tls) as address:
        known = store_of(address, **{"ca.location": str(authority.file)})
        assert 7 == known.publish("s", '"long"', SCHEMA).number
        with pytest.raises(RegistryUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            store_of(address).publish("s", '"long"', SCHEMA)


def test_an_answer_has_its_time() -> None:
    """A registry that answers too late counts as one that does not answer."""
    over = threading.Event()

    def late(handler: http.server.BaseHTTPRequestHandler) -> None:
        over.wait(SECONDS_MAX / 2)  # Sooner than by default, where tests ignore the option.
        registered(handler)

    with answering(late) as address:
        store = store_of(address, **{"timeout.ms": 100})
        with pytest.raises(RegistryUnavailableError, match="timed out"):
            store.publish("s", '"long"', SCHEMA)
        over.set()


def test_nothing_is_followed_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect is not followed, so that no other address gets the request."""
    asked: list[str] = []

    def elsewhere(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        handler.send_response(302)
        handler.send_header("Location", f"{address}{handler.path}")
        handler.end_headers()

    with answering(elsewhere) as url, registry(tmp_path / "registry.db") as address:
        store = store_of(url, user="u")
        with pytest.raises(RegistryForbiddenError, match="HTTP 302"):
            store.publish("s", '"long"', SCHEMA)
        assert (200, []) == ask(address, "GET", "/subjects")
        monkeypatch.setattr(hosts, "_METADATA", ("127.0.0.1",))
        with pytest.raises(RegistryUnavailableError, match="is an address of the link itself"):
            store.publish("s", '"long"', SCHEMA)

    assert ["/subjects/s/versions"] == asked
