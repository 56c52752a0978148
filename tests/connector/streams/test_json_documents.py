"""Messages in JSON are the changes that the same messages in Avro are, by the same schemas."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.serde.decoding import UndecodableError
from headrace.connector.streams.changes import Change, ChangeReader
from headrace.connector.streams.json_documents import document_reader_of
from headrace.plugins import ConfigError
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.settings.filled import filled
from helpers.streams.published import published, read


@pytest.fixture
def servers() -> Iterator[str]:
    """Return the address of a broker of the test's own."""
    broker = EmbeddedBroker()
    yield broker.bootstrap_servers
    del broker


def facts(change: Change) -> str:
    """Return all that a change has, but where it was; NaN as a text."""
    names = ("table", "operation", "timestamp_us", "key", "payload", "before", "after")
    names += ("written", "mutation", "index")  # type: ignore[assignment]
    found = {name: getattr(change, name) for name in names}
    found["written"] = sorted(change.written)
    return repr((found, change.document))


@pytest.mark.parametrize(
    ("envelope", "options"),
    [
        ("cep44", {}),
        ("cep44", {"types": "cep44", "key": "primary"}),
        ("flat", {"large.policy": "chunk", "large.bytes": "1000"}),
        ("debezium", {"headers": "schemaId,table,mutation,index"}),
    ],
)
def test_it_is_what_avro_has(
    tmp_path: Path, servers: str, envelope: str, options: dict[str, str]
) -> None:
    """Values of all types, keys, facts and the whole document, in each envelope."""
    found = {}
    for name in ("avro", "json"):
        given = {"envelope": envelope, "format": name, **options}
        job = published(tmp_path / name, servers, f"in-{name}", **given)
        reader = ChangeReader.of_job(job)
        found[name] = sorted(map(facts, read(reader, servers, f"in-{name}")))
        reader.close()

    assert len(found["avro"]) > 100
    assert found["avro"] == found["json"]


def test_keys_may_have_another_format(tmp_path: Path, servers: str) -> None:
    """Values in JSON with keys as text: the key is None, and all else is there."""
    job = published(tmp_path, servers, "keys", format="json", **{"key.format": "text"})
    reader = ChangeReader.of_job(job)
    changes = filled(read(reader, servers, "keys"))

    assert {None} == {change.key for change in changes}
    reader.close()


def test_json_needs_the_state_file(tmp_path: Path) -> None:
    """No schema store has schemas of messages in JSON."""
    given = {"bootstrap.servers": "b:1", "topic": "t", "format": "json"}
    store = {"schema.store": "file", "schema.store.path": str(tmp_path)}

    for options in (given, {**given, **store}):
        with pytest.raises(ConfigError, match="state file"):
            ChangeReader.of(options)


def test_another_envelope_is_refused(tmp_path: Path, servers: str) -> None:
    """A message with other fields is refused, and the error has no values."""
    published(tmp_path, servers, "flat", envelope="flat", format="json")
    options = {"bootstrap.servers": servers, "topic": "flat", "format": "json"}
    reader = ChangeReader.of(options, state=tmp_path / "state.db")

    for message in filled(consume(servers, "flat")):
        headers: Any = message.headers()
        with pytest.raises(UndecodableError, match="does not fit the schema of"):
            reader.read("flat", 0, message.key(), message.value(), headers)
    reader.close()


SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "b", "type": ["null", "boolean"]},
        {"name": "i", "type": "int"},
        {"name": "d", "type": "double"},
        {"name": "f", "type": "float"},
        {"name": "s", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "x", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "y", "type": "F"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "m", "type": {"type": "map", "values": "bytes"}},
        {"name": "a", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "u", "type": ["null", "string", "long"]},
        {"name": "n", "type": "null"},
    ],
}
GOOD: dict[str, Any] = {
    "b": True,
    "i": 1,
    "d": 2,
    "f": 0.1,
    "s": "u",
    "x": "AAE=",
    "y": "AgM=",
    "e": "B",
    "m": {"k": "/w=="},
    "a": [None, 1 << 62],
    "u": 7,
    "n": None,
}


def test_each_type() -> None:
    """Bytes come from base64; a number of 32 bits is the one that its digits name."""
    expected = {
        "b": True,
        "i": 1,
        "d": 2.0,
        "f": 0.10000000149011612,
        "s": "u",
        "x": b"\0\1",
        "y": b"\2\3",
        "e": "B",
        "m": {"k": b"\xff"},
        "a": [None, 1 << 62],
        "u": 7,
        "n": None,
    }
    found = document_reader_of(SCHEMA)(json.dumps(GOOD).encode())

    assert (expected, float) == (found, type(found["d"]))


@pytest.mark.parametrize(
    "fault",
    [
        *({"b": 1}, {"i": True}, {"i": 1.0}, {"d": "1"}, {"d": True}, {"f": None}, {"s": 1}),
        *({"x": "AAECAw=="}, {"x": "?"}, {"y": None}, {"e": "C"}, {"e": []}, {"m": []}),
        *({"m": {"k": 1}}, {"a": {}}, {"a": ["1"]}, {"n": 0}, {"more": 1}),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(fault: dict[str, Any]) -> None:
    """A value of another type, and a field more or less, are errors."""
    read_one = document_reader_of(SCHEMA)
    with pytest.raises((ValueError, TypeError)):
        read_one(json.dumps({**GOOD, **fault}).encode())
    fewer = {name: value for name, value in GOOD.items() if name not in fault}
    if fewer != GOOD:
        with pytest.raises(ValueError, match="other fields"):
            read_one(json.dumps(fewer).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff"])
def test_what_is_not_an_object_is_refused(content: bytes) -> None:
    """Neither is another value of JSON, nor what is not JSON."""
    with pytest.raises(ValueError, match=r"found|[Ii]nput|malformed"):
        document_reader_of(SCHEMA)(content)
