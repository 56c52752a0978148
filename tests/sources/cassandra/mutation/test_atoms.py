"""Atoms: equal for what says the same in other bytes, different for everything else."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest

from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.mutation.atoms import ATOM_BYTES, AtomCutter
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import Schema
from helpers.logs.sample_log import MUTATIONS, NOW_S, NOW_US, sample_mutation, sample_schema
from helpers.recordings import justified
from helpers.recordings.corpora import recording

pytestmark = pytest.mark.hot

TABLE: Final = "6f0c2f80-3b1e-11ef-9d2b-0f1e2d3c4b5a"
OTHER: Final = "7f0c2f80-3b1e-11ef-9d2b-0f1e2d3c4b5a"
SCHEMA: Final = parse_schema(
    "".join(
        f"CREATE TABLE shop.{name} (id blob, a blob, b blob, fixed blob static, v blob, w blob,"
        f" m map<blob, blob>, PRIMARY KEY (id, a, b)) WITH cdc = true AND ID = {table};"
        for name, table in (("one", TABLE), ("two", OTHER))
    )
)
CELL: Final = {"ts": NOW_US, "value": "01"}
EXPIRING: Final = {**CELL, "ttl": 60, "ldt": NOW_S + 60}
TOMBSTONE: Final = {"ts": NOW_US, "ldt": NOW_S, "tombstone": True}
TIME: Final = {"ts": NOW_US, "ldt": NOW_S}

Document = Mapping[str, Any]  # Any: mutation JSON.


def cutter(schema: Schema = SCHEMA) -> AtomCutter:
    """Return what cuts mutations of the tables in *schema*."""
    return AtomCutter(Catalogue(schema))


def said(*updates: Document, messaging: int = 12) -> frozenset[bytes]:
    """Return the atoms of a mutation of *updates*, as a log of that version has it."""
    whole = [{"id": TABLE, "key": "07", "items": [], **update} for update in updates]
    raw = encode_mutation({"updates": whole}, SCHEMA, messaging)
    return cutter().atoms_of(raw, messaging)


def sample(name: str) -> frozenset[bytes]:
    """Return the atoms of one of MUTATIONS."""
    return cutter(sample_schema(static=name == "static")).atoms_of(MUTATIONS[name], 12)


def row(a: str | None = "01", b: str | None = "02", **parts: object) -> Document:
    """Return a row with v = 01, or with *parts*."""
    return {"clustering": [a, b], "columns": {"v": CELL}, **parts}


def columns(**cells: object) -> Document:
    """Return an update of a row with *cells*."""
    return {"items": [row(columns=cells)]}


def deleted(start: Document, end: Document) -> Document:
    """Return an update that deletes a range, with bounds of one value as default."""
    opened = {"marker": "INCL_START_BOUND", "values": ["01"], "open": TIME, **start}
    closed = {"marker": "INCL_END_BOUND", "values": ["05"], "close": TIME, **end}
    return {"items": [opened, closed]}


# Each says one thing, and none of them the same.
SINGLE: Final[Mapping[str, Document]] = {
    "value": columns(v=CELL),
    "another value": columns(v={**CELL, "value": "02"}),
    "empty value": columns(v={**CELL, "value": ""}),
    "another time": columns(v={**CELL, "ts": NOW_US + 1}),
    "another column": columns(w=CELL),
    "expiring": columns(v=EXPIRING),
    "another TTL": columns(v={**EXPIRING, "ttl": 61}),
    "expiring later": columns(v={**EXPIRING, "ldt": NOW_S + 61}),
    "tombstone": columns(v=TOMBSTONE),
    "later tombstone": columns(v={**TOMBSTONE, "ldt": NOW_S + 1}),
    "entry": columns(m={"cells": [{**CELL, "path": "01"}]}),
    "another path": columns(m={"cells": [{**CELL, "path": "02"}]}),
    "empty path": columns(m={"cells": [{**CELL, "path": ""}]}),
    "longer path, shorter value": columns(m={"cells": [{**CELL, "path": "0101", "value": ""}]}),
    "entry's tombstone": columns(m={"cells": [{**TOMBSTONE, "path": "01"}]}),
    "cleared": columns(m={"cells": [], "deletion": TIME}),
    "cleared at another time": columns(m={"cells": [], "deletion": {**TIME, "ts": NOW_US + 1}}),
    "liveness": {"items": [row(columns={}, liveness={"ts": NOW_US})]},
    "expiring liveness": {
        "items": [row(columns={}, liveness={"ts": NOW_US, "ttl": 60, "ldt": NOW_S + 60})]
    },
    "row deletion": {"items": [row(columns={}, deletion=TIME)]},
    "partition deletion": {"partition_deletion": TIME},
    "later partition deletion": {"partition_deletion": {**TIME, "ldt": NOW_S + 1}},
    "static": {"static": {"clustering": "static", "columns": {"fixed": CELL}}},
    "another clustering": {"items": [row("01", "03")]},
    "moved between clusterings": {"items": [row("0102", "")]},
    "moved back": {"items": [row("", "0102")]},
    "null clustering": {"items": [row("01", None)]},
    "empty clustering": {"items": [row("01", "")]},
    "another key": {"key": "0701", "items": [row()]},
    "another table": {"id": OTHER, "items": [row()]},
    "range": deleted({}, {}),
    "range, start excluded": deleted({"marker": "EXCL_START_BOUND"}, {}),
    "range, end excluded": deleted({}, {"marker": "EXCL_END_BOUND"}),
    "range from the beginning": deleted({"values": []}, {}),
    "range to the end": deleted({}, {"values": []}),
    "longer range": deleted({}, {"values": ["05", "01"]}),
    "range of null": deleted({}, {"values": ["05", None]}),
    "later range": deleted({"open": {**TIME, "ts": 9}}, {"close": {**TIME, "ts": 9}}),
}


def test_what_differs_in_one_thing_has_another_atom() -> None:
    """Table, key, clustering, column, path, time, TTL, second, value: each counts."""
    found = [said(update) for update in SINGLE.values()]

    assert [1] * len(SINGLE) == [len(atoms) for atoms in found]
    assert len(SINGLE) == len(frozenset().union(*found))
    assert {ATOM_BYTES} == {len(atom) for atoms in found for atom in atoms}


@pytest.mark.parametrize("messaging", MESSAGING.values())
def test_the_same_in_another_messaging_version(messaging: int) -> None:
    """12, 13 and 14 differ in bytes, not in atoms, also where 4.x and 5.x write "live" apart."""
    both = columns(
        m={"cells": [{**CELL, "path": "01"}], "deletion": TIME},
        v=EXPIRING,
        w=TOMBSTONE,
    )
    for update in (*SINGLE.values(), both):
        assert said(update) == said(update, messaging=messaging)

    assert sample("both, 4.x") == sample("both, 5.x")


def test_many_rows_in_one_mutation_or_each_in_its_own() -> None:
    """A stream's mutation of a hundred rows has the atoms of the hundred: other bases, a subset."""
    rows = [
        row(
            f"{i:02x}",
            liveness={"ts": NOW_US + i},
            columns={("v" if i % 2 else "w"): {**CELL, "ts": NOW_US + i}},
        )
        for i in range(100)
    ]

    one = said({"items": rows})
    each = [said({"items": [item]}) for item in rows]

    assert 200 == len(one)
    assert one == frozenset().union(*each)


def test_one_update_or_two_of_the_same_partition() -> None:
    """How a mutation is divided into updates does not matter, nor their order."""
    first, second = columns(v=CELL), columns(w=CELL)
    static = SINGLE["static"]

    assert said(columns(v=CELL, w=CELL)) == said(first, second)
    assert said({**static, "items": first["items"]}) == said(first, static)
    assert said(first, second) == said(second, first)


def test_a_boundary_is_the_end_of_one_range_and_the_start_of_the_next() -> None:
    """Two ranges that meet in one marker are those that have two markers of their own."""
    later = {"ts": NOW_US + 10, "ldt": NOW_S + 3}
    meeting = [
        {"marker": "INCL_START_BOUND", "values": ["01"], "open": TIME},
        {
            "marker": "EXCL_END_INCL_START_BOUNDARY",
            "values": ["05"],
            "close": TIME,
            "open": later,
        },
        {"marker": "INCL_END_BOUND", "values": [], "close": later},
    ]
    one = deleted({}, {"marker": "EXCL_END_BOUND"})
    two = deleted({"values": ["05"], "open": later}, {"values": [], "close": later})

    assert said({"items": meeting}) == said(one) | said(two)


def test_a_range_that_was_split_is_new() -> None:
    """Two halves are not what was said of the whole: rather a change twice than one missing."""
    first = deleted({}, {"marker": "EXCL_END_BOUND", "values": ["03"]})
    second = deleted({"values": ["03"]}, {})

    assert said(first, second).isdisjoint(said(deleted({}, {})))


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_has_changes_has_atoms(name: str) -> None:
    """Only a mutation without changes says nothing."""
    mutation = sample_mutation(name)

    assert bool(mutation.changes()) == bool(sample(name))
    assert frozenset() == said({"items": [row(columns={})]})


@pytest.mark.parametrize("name", ["5.0-ops", "5.0-types", "6.0-v9-ops", "4.0-types", "5.0-repair"])
def test_atoms_of_recorded_mutations_are_those_that_the_oracle_tells(name: str) -> None:
    """One to one, over all mutations: what is equal there is equal here, and nothing else."""
    folder = recording(name)
    cut = cutter(parse_schema((folder / "schema.cql").read_text()))
    contents: dict[frozenset[bytes], justified.Content] = {}
    for reported, raw in recorded(folder):
        content = frozenset(justified.atoms(reported))
        found = cut.atoms_of(raw, reported["messaging"])
        assert len(content) == len(found)
        assert content == contents.setdefault(found, content)

    atoms = frozenset[bytes]().union(*contents)
    assert len(justified.union(set(contents.values()))) == len(atoms) > 0


def recorded(folder: Path) -> Iterator[tuple[Document, bytes]]:
    """Yield each mutation that the oracle found in the logs of *folder*, and its bytes."""
    logs = (folder / "segments").rglob("*.log")
    segments = {int(log.stem.rpartition("-")[2]): log.read_bytes() for log in logs}
    with (folder / "oracle.jsonl").open("rb") as lines:
        for line in lines:
            reported = msgspec.json.decode(line)
            end = reported["position"] - 4  # The checksum stands behind the mutation.
            yield reported, segments[reported["segment"]][end - reported["size"] : end]


def test_what_does_not_fit_has_no_atoms() -> None:
    """Markers that do not pair and unknown tables are errors, as in decoding."""
    opened, closed = deleted({}, {})["items"]
    for items in ([opened], [closed], [opened, opened, closed]):
        with pytest.raises(BadMutationError):
            said({"items": items})
    with pytest.raises(UnknownTableError):
        cutter().atoms_of(MUTATIONS["insert"].replace(UUID(TABLE).bytes, bytes(16)), 12)
