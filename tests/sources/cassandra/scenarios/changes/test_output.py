"""Scenarios O that are about a row's message: its key."""

import json
from collections import defaultdict

import pytest

from headrace.connector.serde import Encoder
from headrace.plugins import Encoding
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.recordings.batches import recorded_batches

ROWS = ("INSERT", "UPDATE", "DELETE")


@pytest.mark.parametrize("codec", ["avro", "json", "text"])
@pytest.mark.parametrize("name", ["4.1-ops", "5.0-ops"])
def test_key_stability(name: str, codec: str) -> None:
    """O02: a row's insert, update and delete have the same key; another row has another key."""
    (batch,) = recorded_batches(name)
    wanted = Encoding(codec="json", key_codec=codec, envelope="flat", key="primary")
    made = Encoder(wanted, ORIGIN).encode(batch, token=1)
    named = Encoder(Encoding(codec="json", envelope="flat", key="primary"), ORIGIN).encode(
        batch, token=1
    )
    keys = defaultdict(set)
    operations = defaultdict(set)
    for table, key, names, value in zip(
        made.tables, made.keys, named.keys, made.values, strict=True
    ):
        said = json.loads(value)
        if said["__op"] not in ROWS or said["__static"]:
            continue
        assert names is not None
        row = (table, *(json.dumps(said[column]) for column in json.loads(names)))
        keys[row].add(key)
        operations[row].add(said["__op"])

    assert {1} == {len(found) for found in keys.values()}
    assert len(keys) == len({(row[0], *found) for row, found in keys.items()})
    assert any(found >= {"INSERT", "DELETE"} for found in operations.values())
    assert any(found >= {"UPDATE", "DELETE"} for found in operations.values())
