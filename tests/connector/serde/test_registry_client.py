"""The schema store `registry`, against the embedded registry and against none."""

import http.server
import json
import threading
from pathlib import Path

import pytest

from headrace.connector.serde.registry_client import (
    RegistryConfig,
    RegistryForbiddenError,
    RegistrySchemaStore,
    RegistryUnavailableError,
)
from headrace.plugins import ConfigError, SchemaRefusedError, hosts, parse_config
from headrace.plugins.testing.doubles import context, sample_records
from registries import ask, registry

SCHEMA = sample_records(1)[0].schema
NOWHERE = "http://127.0.0.1:1"


def store_of(url: str, **options: object) -> RegistrySchemaStore:
    """Return a store."""
    return RegistrySchemaStore(parse_config(RegistryConfig, {"url": url, **options}), context())


def test_a_schema_gets_the_registrys_number_and_guid(tmp_path: Path) -> None:
    """The same twice has the same number, and subjects may have any name."""
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
    """With the registry's reason."""
    with registry(tmp_path / "registry.db") as address:
        store = store_of(address)
        store.publish("s", '"long"', SCHEMA)

        with pytest.raises(SchemaRefusedError, match="reader type string cannot read writer type"):
            store.publish("s", '"string"', SCHEMA)


def test_addresses_are_asked_in_turn(tmp_path: Path) -> None:
    """One that does not answer is passed over; none that answers is an error to be repeated."""
    with registry(tmp_path / "registry.db") as address:
        assert 1 == store_of(f"{NOWHERE}, {address}/").publish("s", '"long"', SCHEMA).number
    with pytest.raises(RegistryUnavailableError):
        store_of(NOWHERE).publish("s", '"long"', SCHEMA)


def test_what_is_no_registry_is_told_apart(tmp_path: Path) -> None:
    """An address that answers something else is not asked again and again without a word."""
    with registry(tmp_path / "registry.db") as address, pytest.raises(RegistryForbiddenError):
        store_of(f"{address}/nothing/here").publish("s", '"long"', SCHEMA)


@pytest.mark.parametrize("url", ["", "localhost:8081", "ftp://h", "http://", "http://user:pw@h"])
def test_a_wrong_address_is_refused(url: str) -> None:
    """Users and passwords have options of their own."""
    with pytest.raises(ConfigError):
        store_of(url)


def test_nothing_is_followed_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirection is no answer; an address where nothing may go is told nothing."""
    asked: list[str] = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        """Sends everybody to the registry."""

        def do_POST(self) -> None:
            """Answer."""
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"{address}{self.path}")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with registry(tmp_path / "registry.db") as address:
            store = store_of(f"http://localhost:{server.server_address[1]}", user="u")
            with pytest.raises(RegistryForbiddenError, match="HTTP 302"):
                store.publish("s", '"long"', SCHEMA)
            assert (200, []) == ask(address, "GET", "/subjects")
            monkeypatch.setattr(hosts, "_METADATA", ("127.0.0.1",))
            with pytest.raises(RegistryUnavailableError, match="is an address of the link itself"):
                store.publish("s", '"long"', SCHEMA)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    assert ["/subjects/s/versions"] == asked
