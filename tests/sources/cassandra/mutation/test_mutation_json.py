"""Mutations printed as JSON are those of Cassandra's own reader, object for object."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.sources.cassandra.mutation.mutation_json import mutation_document
from helpers.logs.sample_log import MUTATIONS, NOW_S, NOW_US, recorded_mutations, sample_mutation
from helpers.logs.scenes import Scene
from helpers.recordings.corpora import recording
from helpers.settings.filled import filled
from helpers.settings.seeds import soaked

RECORDINGS = [
    "4.0-ops",
    "4.0-random",
    "4.0-types",
    "4.1-ops",
    "4.1-random",
    "5.0-compact",
    "5.0-ops",
    "5.0-random",
    "5.0-sizes",
    "5.0-types",
    "5.0-v8-ops",
    "5.0-v8-random",
    "5.0-v8-sizes",
    "6.0-v9-ops",
    "6.0-v9-random",
    "6.0-v9-types",
]


def without_comment(part: dict[str, object]) -> dict[str, object]:
    """Return an object of JSON without the member `text`, which the oracle adds for people."""
    part.pop("text", None)
    return part


def oracle(folder: Path) -> Iterator[object]:
    """Yield what Cassandra's own reader made of a recording."""
    with (folder / "oracle.jsonl").open() as lines:
        for line in lines:
            yield json.loads(line, object_hook=without_comment)


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_logs_read_as_cassandra_reads_them(name: str) -> None:
    """Every mutation of a recording is what the node's own reader made of it."""
    folder = recording(name)
    found = [mutation_document(mutation) for mutation in recorded_mutations(folder)]
    assert list(oracle(folder)) == found


@pytest.mark.soak
@pytest.mark.parametrize("name", ["5.0-ring", *soaked("4.1-ring")])
def test_rings_read_node_by_node(name: str) -> None:
    """The logs of a ring's nodes, one after another, are what Cassandra's reader made of them."""
    folder = recording(name)
    nodes = sorted((folder / "segments").iterdir())
    expected = oracle(folder)
    for node in filled(nodes):
        for mutation in filled(recorded_mutations(folder, node)):
            assert next(expected) == mutation_document(mutation)
    assert [] == list(expected)


@pytest.mark.parametrize("name", ["4.0-schema", "5.0-v8-schema"])
def test_schema_changes_do_not_hide_entries(name: str) -> None:
    """Entries of dropped columns and tables read as well; the oracle renames dropped tables.

    It knows one schema, the last: so cdc is what that says.
    """
    folder = recording(name)
    compared = 0
    for mutation, expected in zip(recorded_mutations(folder), oracle(folder), strict=True):
        text = json.dumps(expected).replace("_dropped", "")
        assert json.loads(text) == mutation_document(mutation, cdc=True)
        compared += 1
    assert 47 == compared


def test_live_deletion_is_no_deletion() -> None:
    """What stands for "no deletion" of a collection is not printed, as 4.x or 5.x wrote it."""
    old, new = (json.dumps(mutation_document(sample_mutation(f"both, {v}.x"))) for v in (4, 5))
    (update,) = json.loads(old)["updates"]
    columns = update["items"][0]["columns"]
    assert {"cells": [{"ts": NOW_US, "path": "63", "value": ""}]} == columns["tags"]
    assert {"ts": NOW_US - 1, "ldt": NOW_S} == columns["attrs"]["deletion"]
    assert json.loads(old)["updates"] == json.loads(new)["updates"]


def test_what_says_nothing_is_not_printed() -> None:
    """A collection without cells and deletion is left out, and a row that has nothing else.

    Cassandra writes such ones for a null at the least of all times, and its reader drops them.
    """
    scene = Scene(
        "CREATE TABLE s.t (k int, c int, st set<int> static, a int, s set<int>, PRIMARY KEY (k, c))"
    )
    nothing: dict[str, object] = {"cells": []}
    rows = [
        {"clustering": ["00000001"], "columns": {"s": nothing}},
        {
            "clustering": ["00000002"],
            "columns": {"s": nothing, "a": {"ts": 5, "value": "00000001"}},
        },
    ]
    static = {"clustering": "static", "columns": {"st": nothing}}
    given = {"table": "s.t", "key": "00000001", "static": static, "items": rows}
    (update,) = json.loads(json.dumps(mutation_document(scene.mutation({"updates": [given]}))))[
        "updates"
    ]
    assert "static" not in update
    (row,) = update["items"]
    assert {"a": {"ts": 5, "value": "00000001"}} == row["columns"]


@pytest.mark.parametrize("name", MUTATIONS)
def test_documents_are_json(name: str) -> None:
    """A document survives JSON."""
    document = mutation_document(sample_mutation(name))
    assert document == json.loads(json.dumps(document))
