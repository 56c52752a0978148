"""Scenarios C and U: collections and user-defined types, frozen and not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.sources.cassandra.mutation.change_json import change_document
from headrace.sources.cassandra.mutation.changes import MutationDecoder
from headrace.sources.cassandra.schema.cursor import SchemaTextError
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from helpers.logs.forged import SCHEMA, TABLE
from helpers.logs.node_logs import everything, forged_nodes
from helpers.logs.scenes import NOW_S, NOW_US, Scene

UDT = "CREATE TYPE s.u (street text, no int)"
OUTER = (
    "CREATE TYPE s.o (home frozen<u>, past frozen<list<frozen<u>>>, names frozen<map<text, int>>)"
)
FROZEN = (
    "CREATE TABLE s.f (k int PRIMARY KEY, l frozen<list<int>>, s frozen<set<text>>,"
    " m frozen<map<text, int>>, u frozen<u>, o frozen<o>)"
)
LOOSE = (
    "CREATE TABLE s.t (k int PRIMARY KEY, l list<int>, s set<text>, m map<int, text>,"
    " mt map<timestamp, frozen<list<timestamp>>>, e set<text>, u u, ul list<frozen<u>>,"
    " um map<text, frozen<u>>)"
)
ELEMENTS = [f"5f8c1a4{n}-83a5-11ee-8000-010203040506" for n in range(4)]


@pytest.fixture
def scene() -> Scene:
    """Return the tables of these scenarios."""
    return Scene(UDT, OUTER, FROZEN, LOOSE)


def update(**parts: Mapping[str, object]) -> dict[str, Any]:
    """Return an UPDATE of the row 1 with `set`, `add` or `remove`."""
    return {"update": "s.t", "key": {"k": 1}, **parts, "timestamp": NOW_US}


def raw_cells(
    column: str, *cells: tuple[str, int, str | None], deleted_us: int | None = None
) -> Any:  # noqa: ANN401 (JSON)
    """Return mutation JSON that writes cells (path, time, value) of a column, in this order."""
    made = [
        {"ts": ts, "path": path}
        | ({"tombstone": True, "ldt": NOW_S} if value is None else {"value": value})
        for path, ts, value in cells
    ]
    deletion = {} if deleted_us is None else {"deletion": {"ts": deleted_us, "ldt": NOW_S}}
    row = {"clustering": [], "columns": {column: {**deletion, "cells": made}}}
    return {"updates": [{"table": "s.t", "key": "00000001", "items": [row]}]}


FROZEN_VALUES: dict[str, tuple[Any, Any]] = {
    "l": ([1, 2], []),
    "s": (["a", "b"], []),
    "m": ({"a": 1}, {}),
}


@pytest.mark.parametrize("name", FROZEN_VALUES)
def test_c01_frozen_collections(scene: Scene, name: str) -> None:
    """C01: a frozen collection is one value: inserted, updated, empty, null."""
    full, empty = FROZEN_VALUES[name]
    for value in (full, empty, None):
        for step in (
            {"insert": "s.f", "values": {"k": 1, name: value}},
            {"update": "s.f", "key": {"k": 1}, "set": {name: value}},
            {"update": "s.f", "key": {"k": 1}, "set": {name: value}, "ttl": 5},
        ):
            assert value == scene.columns(step)[name]["value"]


def test_c02_set_add_and_remove(scene: Scene) -> None:
    """C02: added and removed elements of a set are in two lists; a removed one has no value."""
    added = scene.columns(update(add={"s": ["a", "b"]}))["s"]
    removed = scene.columns(update(remove={"s": ["c"]}))["s"]
    assert ("merge", ["a", "b"], []) == (added["mode"], added["value"], added["removed"])
    assert ("merge", [], ["c"]) == (removed["mode"], removed["value"], removed["removed"])
    assert [{"key": "c", "ts": NOW_US}] == removed["cells"]


def test_c03_map_put_remove_overwrite(scene: Scene) -> None:
    """C03: a map's keys that are put, removed and overwritten differ, without an empty value."""
    assert {
        "mode": "merge",
        "value": {"1": "a"},
        "removed": [],
        "cells": [{"key": 1, "value": "a", "ts": NOW_US}],
    } == scene.columns(update(add={"m": {"1": "a"}}))["m"]
    assert {
        "mode": "merge",
        "value": {},
        "removed": [1],
        "cells": [{"key": 1, "ts": NOW_US}],
    } == scene.columns(update(remove={"m": [1]}))["m"]
    assert {
        "mode": "replace",
        "value": {"2": ""},
        "deletedAt": NOW_US - 1,
        "ts": NOW_US,
    } == scene.columns(update(set={"m": {"2": ""}}))["m"]


def test_c04_lists_append_prepend_and_remove(scene: Scene) -> None:
    """C04: elements are in the order of their time-uuids; a removed one has its id."""
    first, second, third, fourth = (element.replace("-", "") for element in ELEMENTS)
    step = raw_cells(
        "l", (first, 5, "00000009"), (second, 5, None), (third, 5, "00000007"), (fourth, 5, None)
    )
    found = scene.columns(step)["l"]
    assert ("merge", [9, 7], [ELEMENTS[1], ELEMENTS[3]]) == (
        found["mode"],
        found["value"],
        found["removed"],
    )
    assert ELEMENTS == [cell["key"] for cell in found["cells"]]


def test_c04_a_replaced_list_tells_the_ids_of_its_elements(scene: Scene) -> None:
    """C04: a list that is set has the ids of its elements, because later removals name them."""
    found = scene.columns(update(set={"l": [4, 5]}))["l"]
    assert ("replace", [4, 5], []) == (found["mode"], found["value"], found["removed"])
    assert [4, 5] == [cell["value"] for cell in found["cells"]]
    keys = [cell["key"] for cell in found["cells"]]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("name", ["l", "s", "m", "u"])
def test_c05_overwrite_and_append_differ(scene: Scene, name: str) -> None:
    """C05: setting and adding a value differ in mode, and in the deletion of old elements."""
    value: Any = {"l": [1], "s": ["a"], "m": {"1": "a"}, "u": {"no": 1}}[name]
    overwritten = scene.columns(update(set={name: value}))[name]
    added = scene.columns(update(add={name: value}))[name]
    assert overwritten["value"] == added["value"]
    assert ("replace", "merge") == (overwritten["mode"], added["mode"])
    assert ("deletedAt" in overwritten, "deletedAt" in added) == (True, False)


def test_c06_removals_in_several_columns(scene: Scene) -> None:
    """C06: elements removed from several columns of a row are listed under their columns."""
    found = scene.columns(update(remove={"s": ["x"], "e": ["x", "y"], "m": [3]}))
    assert {"s": ["x"], "e": ["x", "y"], "m": [3]} == {n: c["removed"] for n, c in found.items()}


def test_c06_a_replaced_column_beside_a_merged_one(scene: Scene) -> None:
    """C06: a column that is replaced does not change how another column of the row is merged."""
    for messaging in (12, 13, 14):
        step = update(set={"s": ["a"]}, add={"m": {"1": "b"}})
        found = scene.columns(step, messaging=messaging)
        assert ("replace", "merge") == (found["s"]["mode"], found["m"]["mode"])


@pytest.mark.parametrize("name", ["l", "s", "m"])
def test_c07_null_and_empty(scene: Scene, name: str) -> None:
    """C07: a frozen collection can be null or empty; of others Cassandra logs the same for both."""
    empty: Any = {"l": [], "s": [], "m": {}}[name]
    frozen = [
        scene.columns({"update": "s.f", "key": {"k": 1}, "set": {name: value}})[name]["value"]
        for value in (None, empty)
    ]
    assert [None, empty] == frozen
    loose = [scene.columns(update(set={name: value}))[name] for value in (None, empty)]
    cleared = {"mode": "replace", "value": None, "deletedAt": NOW_US - 1, "ts": NOW_US - 1}
    assert [cleared, cleared] == loose


def test_c08_keys_that_are_not_text(scene: Scene) -> None:
    """C08: a key has its own type as the key of a cell, and is a string as a member's name."""
    found = scene.columns(update(add={"m": {"-5": "a"}, "mt": {"1970-01-01 00:00:00.000Z": []}}))
    assert ({"-5": "a"}, -5) == (found["m"]["value"], found["m"]["cells"][0]["key"])
    assert {"1970-01-01 00:00:00.000Z": []} == found["mt"]["value"]


def test_c09_timestamps_inside(scene: Scene) -> None:
    """C09: timestamps in collections have the same form as elsewhere."""
    moment = "2023-11-14 22:13:20.123Z"
    found = scene.columns(update(add={"mt": {moment: [moment, "1969-12-31 23:59:59.999Z"]}}))
    assert {moment: [moment, "1969-12-31 23:59:59.999Z"]} == found["mt"]["value"]


def test_c10_elements_with_their_own_ttl(scene: Scene) -> None:
    """C10: an element with a TTL has its expiry, beside an element without one."""
    step = raw_cells("m", ("00000001", 5, "61"), ("00000002", 5, "62"))
    cells = step["updates"][0]["items"][0]["columns"]["m"]["cells"]
    cells[0].update(ttl=60, ldt=NOW_S + 60)
    assert [
        {"key": 1, "value": "a", "ts": 5, "ttl": 60, "expires": NOW_S + 60},
        {"key": 2, "value": "b", "ts": 5},
    ] == scene.columns(step)["m"]["cells"]


# --- user-defined types


@pytest.mark.parametrize(
    "value",
    [{"street": "Main", "no": 9}, {"street": None, "no": None}, {"street": "", "no": 1}, None],
)
def test_u01_frozen_udts(scene: Scene, value: object) -> None:
    """U01: a frozen UDT has all its fields: full, null, with an empty string; or is null."""
    for step in (
        {"insert": "s.f", "values": {"k": 1, "u": value}},
        {"update": "s.f", "key": {"k": 1}, "set": {"u": value}},
    ):
        assert value == scene.columns(step)["u"]["value"]


def test_u02_one_field(scene: Scene) -> None:
    """U02: of a UDT that is not frozen only the written field is shown; null removes it."""
    assert {
        "mode": "merge",
        "value": {"no": 9},
        "removed": [],
        "cells": [{"key": "no", "value": 9, "ts": NOW_US}],
    } == scene.columns(update(add={"u": {"no": 9}}))["u"]
    nulled = scene.columns(update(add={"u": {"street": None}}))["u"]
    assert ({}, ["street"]) == (nulled["value"], nulled["removed"])


def test_u03_nested_udts(scene: Scene) -> None:
    """U03: UDTs in UDTs, in lists and as values of maps keep their structure."""
    home = {"street": "Main", "no": 9}
    outer = {"home": home, "past": [home, {"street": None, "no": None}], "names": {"a": 1}}
    found = scene.columns({"insert": "s.f", "values": {"k": 1, "o": outer}})
    assert outer == found["o"]["value"]
    loose = scene.columns(update(set={"ul": [home], "um": {"x": home}}))
    assert ([home], {"x": home}) == (loose["ul"]["value"], loose["um"]["value"])


def test_u04_a_field_is_added() -> None:
    """U04: after ADD to a type, old values have null in the new field, and new ones have it."""
    table = "CREATE TABLE s.t (k int PRIMARY KEY, f frozen<u>, u u)"
    before = Scene(UDT, table)
    after = Scene("CREATE TYPE s.u (street text, no int, zip text)", table)
    home = {"street": "Main", "no": 9}
    step: dict[str, Any] = {"insert": "s.t", "values": {"k": 1, "f": home, "u": home}}
    decoder = MutationDecoder(Catalogue(after.schema))
    old = decoder.decode(before.raw(step), messaging=12, segment_id=1, position=1)
    (change,) = old.changes()
    columns: Any = change_document(change)["columns"]
    assert home | {"zip": None} == columns["f"]["value"]
    assert home == columns["u"]["value"]
    full = home | {"zip": "1"}
    new = after.columns({"insert": "s.t", "values": {"k": 1, "f": full, "u": full}})
    assert (full, full) == (new["f"]["value"], new["u"]["value"])


def test_u05_a_type_that_the_reader_does_not_know(tmp_path: Path) -> None:
    """U05: a value whose UDT the reader's schema has with other fields is quarantined.

    Other values are delivered. A schema without the type is refused by the type's name.
    """
    ddl = "CREATE TYPE forged.u (a int{}); CREATE TABLE forged.o (k blob PRIMARY KEY, u frozen<u>)"
    ddl += " WITH cdc = true AND ID = 5f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a;"
    writer = Scene()
    writer.schema = parse_schema(SCHEMA + ddl.format(", b int"))
    value = {"ts": 5, "value": "0000000400000001" + "0000000400000002"}
    odd = {"clustering": [], "liveness": {"ts": 5}, "columns": {"u": value}}
    plain = {"clustering": [], "liveness": {"ts": 5}, "columns": {}}
    raws = [
        writer.raw({"updates": [{"table": "forged.o", "key": "61", "items": [odd]}]}),
        writer.raw({"updates": [{"id": str(TABLE), "key": "61", "items": [plain]}]}),
    ]
    logs = {"n1": raws, "n2": [], "n3": []}
    options = forged_nodes(tmp_path, logs, SCHEMA + ddl.format(""))
    made = [
        each.encode("avro") for each in everything(options | {"consistency": "ONE", "splits": 1})
    ]
    assert 1 == sum(map(len, made))
    (lost,) = [lost for each in made for lost in each.quarantined]
    assert ("bad_value", raws[0]) == (lost.code, lost.content)
    with pytest.raises(SchemaTextError, match="unknown type forged"):
        parse_schema(SCHEMA + ddl.partition(";")[2])
