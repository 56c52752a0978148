"""Scenarios M: schema changes in mid-stream, in the logs of nodes of every release."""

import json
from functools import cache
from typing import Any

import pytest

from headrace.sources.cassandra.inspect.command import main
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.recordings.corpora import recording
from helpers.settings.filled import filled

RECORDINGS = ["4.0-schema", "4.1-schema", "5.0-schema", "5.0-v8-schema", "6.0-v9-schema"]
WRITES = {"insert", "update"}
every_release = pytest.mark.parametrize("name", RECORDINGS)

Document = dict[str, Any]


@cache
def statements(name: str) -> list[Document]:
    """Return the statements of a recording, each write with its changes."""
    lines = (recording(name) / "truth.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def single_changes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> list[tuple[Document, Document]]:
    """Return each write of a recording, with its only change."""
    assert 0 == main([str(recording(name) / "segments")])
    changes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    writes = [statement for statement in statements(name) if statement["op"] in WRITES]
    pairs = list(zip(writes, changes, strict=True))
    assert all(write["ts"] == change["timestamp"] for write, change in pairs)
    return pairs


def ddl(name: str, part: str, *, last: bool = False) -> int:
    """Return the number of the first, or last, DDL statement that has *part* in it."""
    found = [s["seq"] for s in statements(name) if s["op"] == "ddl" and part in s["cql"]]
    number: int = max(found) if last else min(found)
    return number


@every_release
def test_m01_column_added(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """M01: rows from before ADD do not have the column; later rows have it, as it was written."""
    added = ddl(name, " ADD added bigint")
    for write, change in filled(single_changes(name, capsys)):
        expected = write["set"].get("added", {}).get("value")
        found = change["columns"].get("added", {}).get("value")
        assert expected == found
        assert found is None or write["seq"] > added


@every_release
def test_m02_column_dropped(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """M02: rows from before DROP have the column, and rows from after DROP do not."""
    dropped, again = ddl(name, " DROP m"), ddl(name, " DROP y")
    pairs = single_changes(name, capsys)
    before = [w["seq"] for w, change in pairs if "m" in change["columns"]]
    assert before == [w["seq"] for w, _change in pairs if "m" in w["set"] and w["seq"] < dropped]
    texts = [w["seq"] for w, change in pairs if "y" in change["columns"]]
    # Written after the drop with an earlier write time: Cassandra logs no cell.
    assert texts == [w["seq"] for w, _change in pairs if "y" in w["set"] and w["seq"] < again]


@every_release
def test_m03_table_created_again(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """M03: rows of a dropped table and of a new table under its name are both right."""
    dropped = ddl(name, "DROP TABLE")
    table = next(s["cql"] for s in statements(name) if s["seq"] == dropped).split(".")[-1]
    rows = [
        (w["seq"] > dropped, c["columns"])
        for w, c in single_changes(name, capsys)
        if w["table"] == table
    ]
    assert [False, False, True] == [after for after, _columns in rows]
    assert [{"v"}, {"v"}, {"v", "w"}] == [set(columns) for _after, columns in rows]


@every_release
def test_m04_key_column_renamed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """M04: a renamed key column has its old name before RENAME, and its new name after it."""
    renamed = ddl(name, " RENAME k TO kk")
    pairs = [(w, c) for w, c in single_changes(name, capsys) if "c" in w["key"] or "kk" in w["key"]]
    assert len(pairs) > 30
    for write, change in pairs:
        assert ("kk" if write["seq"] > renamed else "k") in change["key"]


@every_release
def test_m05_type_altered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """M05: a UDT's values have the fields that the type had: one, then two, then renamed."""
    udts = [
        c["columns"]["fu"]["value"]
        for _w, c in single_changes(name, capsys)
        if "fu" in c["columns"]
    ]
    assert [{"p": 1}, {"p": 2, "q": "two"}, {"p": 3, "q": None}, {"pp": 4, "q": "4"}] == udts


@every_release
def test_m07_schema_ids_are_deterministic(name: str) -> None:
    """M07: the same statements give the same schema id in any process; ADD gives another."""
    text = (recording(name) / "schema.cql").read_text()
    first, second = (parse_schema(text), parse_schema(text))
    ids = {table.schema_id for table in first.tables.values()}
    assert ids == {table.schema_id for table in second.tables.values()}
    table = next(table for table in first.tables.values() if not table.is_dropped)
    more = parse_schema(f"{text}\nALTER TABLE {table.qualified} ADD more_of_it int;")
    assert table.schema_id != more.tables[table.table_id].schema_id


@every_release
def test_m08_cdc_toggled(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """M08: `inspect` shows rows written while `cdc` was off and on: the log has all of them.

    A job delivers those that were written while it was on.
    """
    values = [
        change["columns"]["v"]["value"]
        for write, change in single_changes(name, capsys)
        if write["seq"] > ddl(name, "cdc = true", last=True) - 6 and "v" in write["set"]
    ]
    assert ["off", "on", "off again", "on again"] == values[-4:]


@every_release
def test_m09_truncate_and_drop(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """M09: rows from before TRUNCATE and DROP TABLE stay as they were written; none are added."""
    values = [
        c["columns"]["v"]["value"] for w, c in single_changes(name, capsys) if "v" in w["set"]
    ]
    assert ["before truncate", "after truncate", "second life"] == values[:3]
