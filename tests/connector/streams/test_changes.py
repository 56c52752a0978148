"""What a job publishes is read as typed changes, wherever its schemas and its large values are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.serde.codecs.records import BytesLeftError
from headrace.connector.serde.decoding import UndecodableError
from headrace.connector.serde.large import ClaimLostError
from headrace.connector.serde.schemas.lookup import SchemaUnknownError
from headrace.connector.streams.audit.books import JobBooks
from headrace.connector.streams.changes import ChangeReader
from headrace.plugins import ConfigError, MissingRequirementError
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.servers.registries import registry
from helpers.settings.filled import filled
from helpers.streams.claim_box import BoxEmptyError, install
from helpers.streams.published import by_name, facts_of, facts_of_records, published, read, records


@pytest.fixture
def servers() -> Iterator[str]:
    """Return the address of a broker of the test's own."""
    broker = EmbeddedBroker()
    yield broker.bootstrap_servers
    del broker


STORES: dict[str, dict[str, str]] = {
    "state": {},
    "file": {"schema.store": "file", "schema.store.path": "schemas"},
    "topic": {"schema.store": "topic", "schema.store.topic": "schemas"},
    "registry": {"schema.store": "registry", "schema.framing": "confluent"},
    "guids": {"schema.store": "registry", "schema.framing": "confluent-headers"},
}


@pytest.mark.parametrize(
    ("kind", "envelope"),
    [
        ("state", "cep44"),
        ("state", "flat"),
        ("file", "debezium"),
        ("topic", "flat"),
        ("registry", "cep44"),
        ("guids", "debezium"),
    ],
)
def test_changes_are_those_of_the_source(
    tmp_path: Path, servers: str, kind: str, envelope: str
) -> None:
    """Table, operation, write time, written columns: of each schema source and envelope."""
    options = dict(STORES[kind])
    with registry(tmp_path / "registry.db") as url:
        if kind == "topic":
            options["schema.store.bootstrap.servers"] = servers
        elif options.get("schema.store") == "registry":
            options["schema.store.url"] = url
        job = published(tmp_path, servers, "all", envelope=envelope, **options)
        if kind != "state":
            (tmp_path / "state.db").unlink()  # It is not read.
        reader = ChangeReader.of_job(job)

        found = sorted(map(facts_of, read(reader, servers, "all")))

    expected = facts_of_records()
    if envelope == "debezium":  # It has one word for deletions of rows and of partitions.
        expected = sorted(
            (table, name.replace("_PARTITION", ""), at, written)
            for table, name, at, written in expected
        )
    assert expected == found
    reader.close()


@pytest.mark.parametrize("policy", ["chunk", "claim-check"])
def test_large_values_are_whole(tmp_path: Path, servers: str, policy: str) -> None:
    """In parts or kept elsewhere, and framed: what is read is what the source has."""
    with registry(tmp_path / "registry.db") as url:
        job = published(
            tmp_path,
            servers,
            "large",
            **{"large.policy": policy, "large.bytes": "1000", "large.store.path": "claims"},
            **{"schema.framing": "confluent", "schema.store": "registry", "schema.store.url": url},
        )
        reader = ChangeReader.of_job(job)
        found = [change.document for change in read(reader, servers, "large")]

    expected = sorted((record.value for record in records()), key=by_name)
    assert len(expected) < sum(1 for _ in consume(servers, "large")) or policy == "claim-check"
    found.sort(key=by_name)
    assert list(map(repr, filled(expected))) == list(map(repr, found))  # NaN is not NaN.
    assert frozenset() == reader.waiting("large", 0)
    reader.close()


def test_a_lost_claim_is_a_named_error(tmp_path: Path, servers: str) -> None:
    """A value that the claim store does not have is not left out."""
    claims = {"large.policy": "claim-check", "large.bytes": "1000", "large.store.path": "claims"}
    job = published(tmp_path, servers, "claims", **claims)
    (tmp_path / "claims").rename(tmp_path / "elsewhere")

    with pytest.raises(ClaimLostError):
        list(read(ChangeReader.of_job(job), servers, "claims"))


def claims_in(store: str) -> dict[str, str]:
    """Return the options with which large values are in a plugin's store."""
    named = {"large.store": store, "large.store.file": "values"}
    return {"large.policy": "claim-check", "large.bytes": "1000", **named}


def test_claims_of_a_plugin_are_read(
    tmp_path: Path, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that has `get` is read, its paths relative to the job file; with or without policy.

    What it raises is the reader's, and a value that is not the claimed one is refused.
    """
    install(tmp_path / "plugin", monkeypatch)
    (tmp_path / "job").mkdir()
    monkeypatch.chdir(tmp_path / "job")
    job = published(tmp_path / "job", servers, "box", **claims_in("box"))
    monkeypatch.chdir("/")
    expected = facts_of_records()
    assert any("claimCheck" in dict(m.headers() or ()) for m in consume(servers, "box"))
    assert expected == sorted(map(facts_of, read(ChangeReader.of_job(job), servers, "box")))
    values = tmp_path / "job" / "values"
    options = {"bootstrap.servers": servers, "topic": "box"}
    options |= {"large.store": "box", "large.store.file": str(values)}
    reader = ChangeReader.of(options, state=tmp_path / "job" / "state.db")
    assert expected == sorted(map(facts_of, read(reader, servers, "box")))

    values.write_bytes(b"x" * values.stat().st_size)
    with pytest.raises(ClaimLostError, match="something else"):
        list(read(reader, servers, "box"))
    values.unlink()
    with pytest.raises(BoxEmptyError):
        list(read(reader, servers, "box"))
    reader.close()


def test_a_claim_store_that_cannot_be_read_is_named(
    tmp_path: Path, servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin without `get`, and one that is not installed, are named errors."""
    install(tmp_path / "plugin", monkeypatch)
    file = {"large.store.file": str(tmp_path / "values")}
    job = published(tmp_path / "job", servers, "chute", **claims_in("chute") | file)
    with pytest.raises(MissingRequirementError, match="cannot read") as caught:
        list(read(ChangeReader.of_job(job), servers, "chute"))
    assert "Chute" == caught.value.place

    options = {"bootstrap.servers": servers, "topic": "t", "large.store": "bax", **file}
    with pytest.raises(ConfigError, match="did you mean box"):
        ChangeReader.of(options, state=tmp_path / "job" / "state.db")


def test_a_job_whose_state_is_in_a_store(tmp_path: Path, servers: str) -> None:
    """Its schemas, and its books, are in the store that the job file names."""
    job = published(tmp_path, servers, "stored", kept_in=str(tmp_path / "kept.db"))
    assert (tmp_path / "kept.db").exists()
    reader = ChangeReader.of_job(job)

    assert facts_of_records() == sorted(map(facts_of, read(reader, servers, "stored")))
    books = JobBooks.of_job(job).read()
    assert len(facts_of_records()) == sum(counts.delivered for counts in books.values())
    reader.close()


def test_a_schema_that_is_not_there_is_a_named_error(tmp_path: Path, servers: str) -> None:
    """The error has its id or number, and where it was looked for."""
    job = published(tmp_path, servers, "unknown", **STORES["file"])
    for path in (tmp_path / "schemas").iterdir():
        path.unlink()

    with pytest.raises(SchemaUnknownError, match="no schema has the id") as caught:
        list(read(ChangeReader.of_job(job), servers, "unknown"))

    assert "schema.store file, topic unknown" == caught.value.place


def test_messages_of_another_schema_are_refused(tmp_path: Path, servers: str) -> None:
    """Bytes that are not what the schema describes give no change, and the error has no values."""
    published(tmp_path, servers, "flat", envelope="flat")
    options = {"bootstrap.servers": servers, "topic": "flat"}
    reader = ChangeReader.of(options, state=tmp_path / "state.db")

    for message in filled(consume(servers, "flat")):
        headers: Any = message.headers()
        with pytest.raises((UndecodableError, BytesLeftError), match=r"schema|end at byte"):
            reader.read("flat", 0, message.key(), message.value(), headers)
    reader.close()


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "schema.store"),
        ({"schema.store": "registry", "schema.store.url": "http://r:1"}, "schema.framing"),
        ({"schema.store": "file", "schema.store.path": "s", "format": "json"}, "format"),
        ({"schema.store": "file", "schema.store.path": "s", "format": "none"}, "format"),
        ({"sasl.password": "secret-word"}, "sink.sasl.password"),
        ({"sasl.password": "${env:HEADRACE_SECRET_TEST}", "acks": "0"}, "sink.acks"),
    ],
)
def test_what_cannot_be_read_is_refused_at_the_start(
    options: dict[str, str], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the option's name, and no password."""
    monkeypatch.setenv("HEADRACE_SECRET_TEST", "secret-word")
    with pytest.raises((ConfigError, MissingRequirementError)) as caught:
        ChangeReader.of({"bootstrap.servers": "b:1", "topic": "t", **options})

    assert key in str(caught.value)
    assert "secret-word" not in str(caught.value)


def test_a_state_file_needs_the_source_for_other_envelopes(tmp_path: Path) -> None:
    """The envelope `flat` has fields of the source's origin."""
    options = {"bootstrap.servers": "b:1", "topic": "t", "envelope": "flat"}

    with pytest.raises(ConfigError, match="source"):
        ChangeReader.of(options, state=tmp_path / "state.db")
