"""Documents become the bytes that Cassandra wrote, and that its own reader read so."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import headrace.sources.cassandra.forge as package
from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.log import LogEntries
from headrace.sources.cassandra.mutation.changes import MutationDecoder
from headrace.sources.cassandra.mutation.mutation_json import mutation_document
from headrace.sources.cassandra.mutation.vints import vint
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import Schema
from helpers.logs.sample_log import segments
from helpers.recordings.corpora import recording
from helpers.settings.filled import filled

# Nothing that reads: what these modules say, the forge may believe.
# `vints` only writes: those who read use `native`.
SHARED = {"errors", "mutation.vints", "schema.ddl", "schema.tables", "schema.types"}
_COMMENTS = {"text", "cdc", "keyspace", "segment", "position", "size", "token", "table"}


def content(document: Any) -> Any:  # noqa: ANN401 (parsed JSON)
    """Return a document without what only describes it."""
    if isinstance(document, dict):
        return {k: content(v) for k, v in document.items() if k not in _COMMENTS}
    return [content(each) for each in document] if isinstance(document, list) else document


def oracle(name: str) -> Iterator[dict[str, Any]]:
    """Yield what Cassandra's reader made of a recording."""
    for path in sorted(recording(name).rglob("oracle.jsonl")):
        yield from map(json.loads, path.read_text().splitlines())


@pytest.mark.parametrize(
    "name", ["4.0-ops", "4.0-random", "5.0-compact", "5.0-v8-ops", "6.0-v9-random", "6.0-v9-types"]
)
def test_what_is_written_reads_as_the_oracle_says(name: str) -> None:
    """Every operation and type, in each messaging version."""
    schema = parse_schema((recording(name) / "schema.cql").read_text())
    decoder = MutationDecoder(Catalogue(schema))
    documents = list(oracle(name))
    assert documents
    for document in documents:
        raw = encode_mutation(document, schema, document["messaging"])
        found = decoder.decode(raw, messaging=document["messaging"], segment_id=1, position=1)
        assert content(document) == content(json.loads(json.dumps(mutation_document(found))))


@pytest.mark.parametrize("name", ["4.0-types", "5.0-types", "5.0-sizes", "6.0-v9-types"])
def test_the_bytes_are_cassandras_own(name: str) -> None:
    """Where a statement was written at once, none differs, also of what is relative."""
    schema = parse_schema((recording(name) / "schema.cql").read_text())
    wanted = {(d["segment"], d["position"]): d for d in filled(oracle(name))}
    for path in segments(recording(name) / "segments"):
        with path.open("rb") as stream:
            entries = LogEntries(stream)
            for raw in entries:
                document = wanted.pop((entries.descriptor.segment_id, entries.position), None)
                if document:
                    assert raw == with_epoch(document, schema, raw)
    assert not wanted


def with_epoch(document: dict[str, Any], schema: Schema, raw: bytes) -> bytes:
    """Return a mutation's bytes; documents have no epoch of the table: it is that of *raw*."""
    if document["messaging"] < MESSAGING[9]:
        return encode_mutation(document, schema, document["messaging"])
    (update,) = document["updates"]
    head = len(b"\0\1") + len(UUID(update["id"]).bytes)
    epochs = (n for n in range(1 << 16) if raw[head:].startswith(vint(n)))
    update["epoch"] = next(epochs)
    # A flag says whether transactions may conflict: it means nothing to a reader.
    return raw[:1] + encode_mutation(document, schema, document["messaging"])[1:]


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"id": "7"},
        {"table": "a.b", "key": "00"},
        {"table": "shop.t", "key": "0g", "items": []},
        {"table": "shop.t", "key": "00", "items": [{"clustering": []}]},
        {"table": "shop.t", "key": "00", "items": [{"clustering": ["00"], "columns": {}}]},
        {"table": "shop.t", "key": "00", "items": [{"clustering": [], "columns": {"w": {}}}]},
        {"table": "shop.t", "key": "00", "items": [{"marker": "UP", "values": []}]},
        {
            "table": "shop.t",
            "key": "00",
            "items": [{"clustering": [], "columns": {"v": {"ts": 1, "value": "00"}}}],
        },
    ],
)
def test_what_is_no_mutation_is_named(update: dict[str, Any]) -> None:
    """Never as an error of Python's."""
    schema = parse_schema(
        "CREATE TABLE shop.t (k blob PRIMARY KEY, v int)"
        " WITH ID = 6f0c2f80-3b1e-11ef-9d2b-0f1e2d3c4b5a"
    )
    with pytest.raises(ScriptError):
        encode_mutation({"updates": [update]}, schema, 12)


def test_it_shares_nothing_with_the_reader() -> None:
    """What reads segments and mutations is not imported, so neither can hide the other's errors."""
    for path in filled(Path(package.__path__[0]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if module.startswith("headrace.") and not module.startswith("headrace.plugins"):
                name = module.removeprefix("headrace.sources.cassandra.")
                assert name.startswith("forge.") or name in SHARED, module
