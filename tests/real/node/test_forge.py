"""Cassandra's own reader finds in forged segments what they were forged from."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.sources.cassandra.errors import CorruptSegmentError
from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.forge.script import Forge, read_steps
from headrace.sources.cassandra.forge.segments import segment, write_segment
from headrace.sources.cassandra.forge.statements import Statements
from headrace.sources.cassandra.forge.wrapping import PLAIN, Wrapping, compression, encryption
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.log import LogEntries
from headrace.sources.cassandra.native import ops
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.recordings.corpora import CORPORA, recording
from real.servers import oracle

pytestmark = pytest.mark.real

STORE = CORPORA / "keystores" / "secret.jceks"
ALIAS, PASSWORD, KEY_PASSWORD = "testing:128", "cassandra", "keypass"
DDL = """\
CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TYPE shop.address (street text, no int);
CREATE TABLE shop.users (id int, seq int, age int, name text, note text static, tags set<text>, \
attrs map<text, int>, addr address, PRIMARY KEY (id, seq)) \
WITH cdc = true AND ID = 6f0c2f80-3b1e-11ef-9d2b-0f1e2d3c4b5a;
"""
_COMMENTS = {"text", "segment", "position", "size", "messaging", "cdc", "keyspace"}
STATEMENTS: list[dict[str, Any]] = [
    {"insert": "shop.users", "values": {"id": 1, "seq": 1, "name": "Ann", "tags": ["b", "a"]}},
    {"insert": "shop.users", "values": {"id": 1, "seq": 2, "attrs": {"k": 7}}, "ttl": 86400},
    {"insert": "shop.users", "values": {"id": 1, "note": "n"}},
    {
        "update": "shop.users",
        "key": {"id": 1, "seq": 1},
        "set": {"age": None, "addr": {"street": "Main", "no": 9}},
        "add": {"tags": ["c"], "attrs": {"l": 8}},
    },
    {"update": "shop.users", "key": {"id": 1, "seq": 2}, "remove": {"tags": ["a"], "attrs": ["k"]}},
    {"delete": "shop.users", "key": {"id": 1, "seq": 1}, "columns": ["name", "tags"]},
    {"delete": "shop.users", "key": {"id": 1, "seq": 9}},
    {
        "delete": "shop.users",
        "key": {"id": 1},
        "range": {"start": {"values": [3], "inclusive": False}, "end": {"values": [5]}},
    },
    {"delete": "shop.users", "key": {"id": 1}, "range": {"start": {"values": [7]}, "end": None}},
    {"delete": "shop.users", "key": {"id": 2}},
]


def wrappings() -> Sequence[Wrapping]:
    """Return every way in which a segment can be written."""
    names = ("LZ4", "Snappy", "Deflate", "Zstd")
    options = KeyOptions(keystore=str(STORE), keystore_password=PASSWORD, key_password=KEY_PASSWORD)
    key = Keys(options).key(ALIAS)
    return (
        PLAIN,
        *(compression(f"{name}Compressor") for name in names),
        encryption(key.material, ALIAS),
    )


def forged(
    folder: Path, documents: Sequence[dict[str, Any]], ddl: str, versions: Sequence[int]
) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Write the mutations in every version and wrapping; yield each segment and what is in it."""
    schema = parse_schema(ddl)
    number = 1_700_000_000_000
    for version in versions:
        raws = [encode_mutation(document, schema, MESSAGING[version]) for document in documents]
        for wrapping in wrappings():
            number += 1
            sections = [raws[at : at + 100] for at in range(0, len(raws), 100)]
            made = segment([*sections, []], version=version, segment_id=number, wrapping=wrapping)
            path = write_segment(folder, made.content, version=version, segment_id=number)
            ends = zip(documents, made.ends, raws, strict=True)
            yield (
                path,
                [
                    {**content(d), "segment": number, "position": end, "size": len(raw)}
                    for d, end, raw in ends
                ],
            )


def content(document: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return a document without what describes where it was and how it looks."""
    if isinstance(document, dict):
        return {k: content(v) for k, v in document.items() if k not in _COMMENTS}
    return [content(each) for each in document] if isinstance(document, list) else document


def both(
    folder: Path, documents: Sequence[dict[str, Any]], ddl: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the mutations that were forged, and what Cassandra reads of them."""
    made = list(forged(folder, documents, ddl, (7, 8)))
    found = oracle.mutations(
        ddl,
        [path for path, _ in made],
        transparent_data_encryption_options={
            "enabled": True,
            "chunk_length_kb": 64,
            "cipher": "AES/CBC/PKCS5Padding",
            "key_alias": ALIAS,
            "iv_length": 16,
            "key_provider": [
                {
                    "class_name": "org.apache.cassandra.security.JKSKeyProvider",
                    "parameters": [
                        {
                            "keystore": str(STORE),
                            "keystore_password": PASSWORD,
                            "store_type": "JCEKS",
                            "key_password": KEY_PASSWORD,
                        }
                    ],
                }
            ],
        },
    )
    expected = [document for _, inside in made for document in inside]
    got = [{**content(d), **{k: d[k] for k in ("segment", "position", "size")}} for d in found]
    return expected, got


def test_statements(tmp_path: Path) -> None:
    """Each kind of statement, alone and in a batch, in versions 7 and 8, however it is wrapped."""
    made = Statements(parse_schema(DDL))
    documents = [made.document([each]) for each in STATEMENTS]
    documents.append(made.document(STATEMENTS[:2]))
    expected, got = both(tmp_path, with_tokens(documents), DDL)
    assert expected == got


def with_tokens(documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add what the oracle prints of each key."""
    for document in documents:
        for update in document["updates"]:
            key = bytes.fromhex(update["key"])
            update["token"] = str(ops.token(key, 0, len(key)))
    return list(documents)


@pytest.mark.parametrize("name", ["4.0-random", "5.0-types"])
def test_recorded_mutations(tmp_path: Path, name: str) -> None:
    """Every type and operation that was recorded, written again."""
    folder = recording(name)
    lines = (folder / "oracle.jsonl").read_text().splitlines()
    ddl = (folder / "schema.cql").read_text()
    expected, got = both(tmp_path, list(map(json.loads, lines)), ddl)
    assert expected == got


DAMAGE = (
    "{entry: 5, part: body, byte: 30}",
    "{entry: 5, part: crc}",
    "{entry: 5, part: size, put: '7fffffff'}",
    "{entry: 5, part: size_crc}",
    "{section: 2, part: marker_crc}",
    "{section: 1, put: '00000000'}",
    "{section: 2, byte: 60, cut: true}",
)


def test_both_readers_go_on_behind_damage(tmp_path: Path) -> None:
    """Cassandra's reader, set to skip errors, finds no mutation that ours does not."""
    rows = "".join(f"- {{insert: shop.users, values: {{id: {n}, seq: 1}}}}\n" for n in range(12))
    script = "".join(f"- segment: {{sync_entries: 4}}\n{rows}- corrupt: {d}\n" for d in DAMAGE)
    paths = Forge(parse_schema(DDL), tmp_path).run(read_steps(script, "damage"))

    found = oracle.mutations(DDL, paths)
    theirs = {(d["segment"], d["position"]) for d in found if "error" not in d}
    ours = set()
    for path in paths:
        with path.open("rb") as stream:
            entries = LogEntries(stream)
            ours |= {(entries.descriptor.segment_id, at) for at in positions(entries)}

    assert len(DAMAGE) <= sum("error" in d for d in found)
    assert theirs <= ours
    assert len(ours) > 5 * len(DAMAGE)


def positions(entries: LogEntries) -> Iterator[int]:
    """Yield where entries end, also behind damage."""
    while True:
        try:
            for _ in entries:
                yield entries.position
        except CorruptSegmentError as error:
            entries.go_on(error)
        else:
            return
