"""Entries are read with the schema of their place: what the log itself says of its tables."""

import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.sources.cassandra.inspect.command import main
from headrace.sources.cassandra.log import LogEntries, LogHandler, Span, read_log, read_mutations
from headrace.sources.cassandra.mutation.changes import Change, Mutation
from headrace.sources.cassandra.mutation.values import to_python
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import Schema, TableSchema
from headrace.sources.cassandra.schema_versions.log_schema import START, LogSchema
from headrace.sources.cassandra.schema_versions.schema_rows import SchemaRows
from helpers.logs.sample_log import segments
from helpers.recordings.corpora import recording
from helpers.settings.filled import filled
from helpers.settings.native_modules import long
from helpers.settings.seeds import soaked

SCHEMAS = ("4.0-schema", "4.1-schema", "5.0-schema", "5.0-v8-schema", "6.0-v9-schema")
WHOLE = ("4.0-ops", "5.0-compact", "6.0-v9-types", *SCHEMAS)
Document = dict[str, Any]  # JSON.


def lines(path: Path) -> list[Document]:
    """Return the documents in *path*."""
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def given(name: str) -> Schema:
    """Return the schema that the recording's file leads to."""
    return parse_schema((recording(name) / "schema.cql").read_text())


def read(name: str, tables: LogSchema) -> list[Mutation]:
    """Return a recording's mutations, read with *tables* as they change."""
    found: list[Mutation] = []
    for path in segments(recording(name) / "segments"):
        with path.open("rb") as stream:
            found += read_mutations(stream, tables, place=path.name)
    return found


def without_drop_times(table: TableSchema) -> TableSchema:
    """Leave out what DDL does not tell."""
    return replace(table, columns=tuple(replace(c, dropped_us=None) for c in table.columns))


@pytest.mark.parametrize("base", ["nothing", "the file"])
@pytest.mark.parametrize("name", WHOLE)
def test_the_log_tells_what_the_ddl_says(name: str, base: str) -> None:
    """After a log with all its DDL every table is what the statements made of it."""
    tables = LogSchema(given(name) if base == "the file" else None)
    read(name, tables)

    found = tables.rows.schema
    for table_id, table in filled(given(name).tables.items()):
        assert without_drop_times(table) == without_drop_times(found.tables[table_id])
    assert given(name).keyspaces == found.keyspaces


@pytest.mark.parametrize("name", SCHEMAS)
def test_rows_survive_being_stored(name: str) -> None:
    """What was stored is what comes back, dropped tables and times included."""
    tables = LogSchema(given(name))
    read(name, tables)
    again = SchemaRows.decode(tables.rows.encode())

    assert tables.rows == again
    assert any(table.is_dropped for table in again.schema.tables.values())


class Notes(LogHandler):
    """Keeps what it is called with."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.mutations: list[Mutation] = []
        self.changes: list[Mutation] = []

    def on_mutation(self, mutation: Mutation) -> None:
        """Keep it."""
        self.mutations.append(mutation)

    def on_schema_change(self, mutation: Mutation) -> None:
        """Keep it."""
        self.changes.append(mutation)


@pytest.mark.soak
@pytest.mark.parametrize(
    "name",
    [
        *map(long, ("4.0-schema", "5.0-v8-schema")),
        *soaked("4.1-schema", "5.0-schema"),
        "6.0-v9-schema",
    ],
)
def test_any_place_can_be_gone_on_from(name: str) -> None:
    """Rows stored at any place read the rest as the rows that were never stored do."""
    everything = read(name, LogSchema(given(name)))
    first, *rest = segments(recording(name) / "segments")
    entries = LogEntries(io.BytesIO(first.read_bytes()))
    places = [entries.position for _ in entries]
    for middle in filled(places[:: len(places) // 12]):
        tables, notes = LogSchema(given(name)), Notes()
        read_log(io.BytesIO(first.read_bytes()), tables, notes, span=Span(0, middle))
        later = LogSchema(SchemaRows.decode(tables.rows.encode()))
        # What is read again of the schema is folded a second time, and changes nothing.
        read_log(io.BytesIO(first.read_bytes()), later, notes, span=Span(middle))
        for path in rest:
            read_log(io.BytesIO(path.read_bytes()), later, notes)
        assert everything == notes.mutations


def cut_of(change: Change) -> tuple[str, int, Mapping[str, bytes], Mapping[str, object]]:
    """Return a change as a statement: table, time, key and what it sets, as bytes."""
    table = change.table
    key = dict(zip([c.name for c in table.partition_key], change.key, strict=True))
    clustering = [raw or b"" for raw in change.clustering or ()]
    key |= dict(zip([c.name for c in table.clustering], clustering, strict=False))
    written: dict[str, object] = {}
    for column in change.columns:
        if column.schema.is_complex:
            cells = sorted([(c.path or b"").hex(), (c.raw or b"").hex()] for c in column.cells)
            written[column.name] = cells
        else:
            written[column.name] = (column.cells[0].raw or b"").hex()
    return table.name, change.timestamp_us, key, written


@pytest.mark.parametrize("base", ["nothing", "the file"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_statements_are_found_again_under_the_names_of_their_time(name: str, base: str) -> None:
    """Each statement's table, key and columns are found, also if they changed later.

    A write to a column that was dropped and added again, older than the drop, leaves no cell.
    """
    tables = LogSchema(given(name) if base == "the file" else None)
    found = [cut_of(change) for m in read(name, tables) for change in m.changes()]

    statements = lines(recording(name) / "truth.jsonl")
    readded = next(s["seq"] for s in statements if s.get("cql", "").endswith("ADD y text"))
    written = [s for s in statements if s["op"] in {"insert", "update"}]
    assert len(written) == len(found) > 40
    for statement, (table, timestamp_us, key, values) in zip(written, found, strict=True):
        assert (statement["table"], statement["ts"]) == (table, timestamp_us)
        assert {n: v["hex"] for n, v in statement["key"].items()} == {
            name: raw.hex() for name, raw in key.items()
        }
        expected = {n: v.get("hex", v.get("cells")) for n, v in statement["set"].items()}
        if statement["seq"] > readded:
            expected.pop("y", None)
        assert expected == values


@pytest.mark.parametrize("name", SCHEMAS)
def test_names_of_udt_fields_are_those_of_the_time(name: str) -> None:
    """A field that is renamed later is read by its old name; one added later does not exist."""
    found = [
        to_python(cell.column.type, cell.raw)
        for mutation in read(name, LogSchema())
        for change in mutation.changes()
        for column in change.columns
        for cell in column.cells
        if column.name == "fu" and cell.raw is not None
    ]

    assert [{"p": 1}, {"p": 2, "q": "two"}, {"p": 3, "q": None}, {"pp": 4, "q": "4"}] == found


@pytest.mark.parametrize("name", SCHEMAS)
def test_cdc_is_that_of_the_time(name: str) -> None:
    """Entries from before cdc was switched on, and from after it was switched off, are none."""
    *others, first, second, third, fourth = read(name, LogSchema(given(name)))

    assert all(mutation.cdc for mutation in others)
    assert [False, True, False, True] == [m.cdc for m in (first, second, third, fourth)]


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> list[Document]:
    """Return what `inspect` prints, tables by their ids' names only."""
    assert 0 == main(list(options))
    return [plain(json.loads(line)) for line in capsys.readouterr().out.splitlines()]


def plain(document: Document) -> Document:
    """Leave out what is a comment, or the reference reader's own name of a dropped table."""

    def stripped(value: object) -> object:
        if isinstance(value, dict):
            return {k: stripped(v) for k, v in value.items() if k != "text"}
        return [stripped(each) for each in value] if isinstance(value, list) else value

    updates = [{**u, "table": u["table"].removesuffix("_dropped")} for u in document["updates"]]
    return {**document, "updates": stripped(updates)}


@pytest.mark.parametrize("name", WHOLE)
def test_inspect_equals_cassandras_reader(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With the DDL object for object; from the log alone but for cdc, which is of its place."""
    folder = recording(name)
    expected = [plain(document) for document in lines(folder / "oracle.jsonl")]

    assert expected == printed(capsys, "--form", "mutations", str(folder / "segments"))

    shutil.copytree(folder / "segments", tmp_path / "segments")
    alone = printed(capsys, "--form", "mutations", str(tmp_path))
    assert [{**d, "cdc": True} for d in expected] == [{**d, "cdc": True} for d in alone]


def test_from_a_place_on_the_schema_is_that_of_the_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What is not shown still counts for the schema, in the same segment and in those before."""
    shutil.copytree(recording("5.0-schema") / "segments", tmp_path / "segments")
    assert 0 == main([str(tmp_path)])
    everything = capsys.readouterr().out.splitlines()
    for line in filled(everything[::6]):
        at = json.loads(line)
        assert 0 == main(["--from", f"{at['segment']}:{at['position'] - 1}", str(tmp_path)])
        assert line == capsys.readouterr().out.splitlines()[0]


def test_versions_are_asked_for_by_place() -> None:
    """Each place has the epoch of the last change before it; equal schemas are one epoch."""
    name = "5.0-schema"
    tables, notes = LogSchema(given(name)), Notes()
    for path in segments(recording(name) / "segments"):
        with path.open("rb") as stream:
            read_log(stream, tables, notes)

    assert START == tables.versions[0].since
    for before, version in zip(tables.versions, tables.versions[1:], strict=False):
        segment, position = version.since
        assert before.epoch is tables.epoch_at((segment, position))
        assert version.epoch is tables.epoch_at((segment, position + 1))
    assert len(tables.versions) > len({v.epoch.number for v in tables.versions})
    assert len(notes.changes) >= len(tables.versions) - 1
    other = LogSchema(given(name), tables.epochs)
    read(name, other)
    assert [v.epoch for v in tables.versions] == [v.epoch for v in other.versions]
