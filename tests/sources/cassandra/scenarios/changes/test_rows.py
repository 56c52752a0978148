"""Scenarios ST, L, B and W: static rows, expiry, batches, light-weight transactions, counters."""

import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from headrace.plugins import EncodedRecords
from headrace.sources.cassandra.inspect.command import main
from headrace.sources.cassandra.mutation.change_json import change_document
from helpers.logs.forged import OTHER, SCHEMA, UNKNOWN, insert, mutation
from helpers.logs.forged import update as forged_update
from helpers.logs.node_logs import everything, forged_nodes
from helpers.logs.sample_log import recorded_mutations
from helpers.logs.scenes import NOW_S, NOW_US, Scene
from helpers.recordings.corpora import recording

TABLE_DDL = (
    "CREATE TABLE s.t (p int, c int, st text static, ss set<text> static, a int, b text,"
    " PRIMARY KEY (p, c))"
)
ROW = {"p": 1, "c": 2}
ONE_COPY: dict[str, object] = {"consistency": "ONE", "splits": 1}


@pytest.fixture
def scene() -> Scene:
    """Return the table of these scenarios."""
    return Scene(TABLE_DDL)


def static(**values: object) -> dict[str, Any]:
    """Return an UPDATE of static columns."""
    return {"update": "s.t", "key": {"p": 1}, "set": values}


# --- static rows


def test_st01_static_with_a_row(scene: Scene) -> None:
    """ST01: a static column written with a row is a change of its own, before the row's change."""
    first, second = scene.documents({"insert": "s.t", "values": ROW | {"st": "s", "a": 5}})
    assert ("UPDATE", None, True, ["st"]) == (
        first["op"],
        first["clustering"],
        first["static"],
        list(first["columns"]),
    )
    assert ("INSERT", {"c": 2}, ["a"]) == (
        second["op"],
        second["clustering"],
        list(second["columns"]),
    )
    assert "static" not in second


def test_st02_static_alone(scene: Scene) -> None:
    """ST02: a static write alone is one change without clustering."""
    found = scene.only(static(st="s"))
    assert (None, True, {"p": 1}) == (found["clustering"], found["static"], found["key"])


def test_st03_static_deletion_and_collection(scene: Scene) -> None:
    """ST03: a static tombstone and a static collection have the same form as others."""
    assert {"value": None, "ts": NOW_US} == scene.columns(static(st=None))["st"]
    replaced = scene.columns(static(ss=["a"]))["ss"]
    cleared = scene.columns({"delete": "s.t", "key": {"p": 1}, "columns": ["ss"]})["ss"]
    assert ("replace", ["a"], None) == (replaced["mode"], replaced["value"], cleared["value"])


def test_st04_static_and_partition_deletion(scene: Scene) -> None:
    """ST04: a partition deletion comes before a newer static write of the same mutation."""
    documents = scene.documents([{"delete": "s.t", "key": {"p": 1}}, static(st="s")])
    assert [("DELETE_PARTITION", NOW_US), ("UPDATE", NOW_US + 1)] == [
        (document["op"], document["timestamp"]) for document in documents
    ]


# --- time to live


def test_l01_ttl_of_row_and_column(scene: Scene) -> None:
    """L01: the row's TTL and a column's own TTL are shown with the exact second of expiry."""
    liveness = {"ts": 5, "ttl": 60, "ldt": NOW_S + 60}
    columns = {
        "a": {"ts": 5, "ttl": 60, "ldt": NOW_S + 60, "value": "00000001"},
        "b": {"ts": 6, "ttl": 9, "ldt": NOW_S + 9, "value": "61"},
    }
    row = {"clustering": ["00000002"], "liveness": liveness, "columns": columns}
    step = {"updates": [{"table": "s.t", "key": "00000001", "items": [row]}]}
    found = scene.only(step)
    assert (60, NOW_S + 60) == (found["ttl"], found["expires"])
    assert {"value": 1, "ts": 5} == found["columns"]["a"]
    assert {"value": "a", "ts": 6, "ttl": 9, "expires": NOW_S + 9} == found["columns"]["b"]


def recorded_ttls() -> dict[int | None, set[int | None]]:
    """Return the TTLs of inserts into the recorded table with a default TTL, by the given TTL."""
    folder = recording("5.0-ops")
    ddl = (folder / "schema.cql").read_text().splitlines()
    (name,) = {line.split()[2] for line in ddl if "default_time_to_live = 864000" in line}
    given = {s["ts"]: s["ttl"] for s in statements(folder) if s["op"] == "insert" and "ttl" in s}
    ttls: dict[int | None, set[int | None]] = defaultdict(set)
    for change in (c for m in recorded_mutations(folder) for c in m.changes()):
        inserted = change.table.qualified == name and change.operation.value == "INSERT"
        if inserted and change.timestamp_us in given:
            ttls[given[change.timestamp_us]].add(change.ttl_s)
    return ttls


def test_l02_default_ttl() -> None:
    """L02: a table's default TTL is shown, because Cassandra writes it into every row."""
    assert {864_000} == recorded_ttls()[None]


def test_l03_no_ttl(scene: Scene) -> None:
    """L03: without a TTL none is shown, nor where `USING TTL 0` overrides the table's default."""
    found = scene.only({"insert": "s.t", "values": ROW | {"a": 1}})
    assert {"ttl", "expires"}.isdisjoint(found | found["columns"]["a"])
    assert {None} == recorded_ttls()[0]


LIMITS = {
    "the last second of 4.x": (12, 2_147_483_646),
    "beyond 2038": (13, 4_102_444_800),
    "the last second of 5.0": (13, 4_294_967_293),
    "beyond 2038 in 6.0": (14, 4_294_967_293),
}


@pytest.mark.parametrize("name", LIMITS)
def test_l04_2038(scene: Scene, name: str) -> None:
    """L04: an expiry or a deletion after 2038 has its exact second, without overflow."""
    messaging, second = LIMITS[name]
    ttl = 20
    step = {"insert": "s.t", "values": ROW | {"a": 1}, "now": second - ttl, "ttl": ttl}
    found = scene.only(step, messaging=messaging)
    assert (ttl, second) == (found["ttl"], found["expires"])
    deletion = {"delete": "s.t", "key": ROW, "now": second}
    ((item,),) = [u.items for u in scene.mutation(deletion, messaging=messaging).updates]
    assert second == item.deletion.local_s  # type: ignore[union-attr]  # A row.


def test_l05_expiry_is_never_an_event() -> None:
    """L05: no recorded row that expired has a change of its own: expiry writes nothing."""
    mutations = recorded_mutations(recording("5.0-ops"))
    expiring = [c for m in mutations for c in m.changes() if c.ttl_s is not None]
    assert expiring
    assert all(change.operation.value == "INSERT" for change in expiring)


# --- batches


def statements(folder: Path) -> list[dict[str, Any]]:
    """Return the statements of a recording."""
    return [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]


def test_b01_logged_batches_over_partitions() -> None:
    """B01: of a logged batch over several partitions every row is delivered once."""
    folder = recording("5.0-ops")
    times = Counter(c.timestamp_us for m in recorded_mutations(folder) for c in m.changes())
    batches: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for statement in statements(folder):
        if statement.get("batch_kind") == "LOGGED":
            batches[statement["batch"]].append(statement)
    assert len(batches) == 10
    for together in batches.values():
        assert [1] * 4 == [times[statement["ts"]] for statement in together]


def test_b02_unlogged_batch_of_mixed_operations(scene: Scene) -> None:
    """B02: several operations on one partition are in log order, each with its own row."""
    documents = scene.documents(
        [
            static(st="s"),
            {"insert": "s.t", "values": {"p": 1, "c": 1, "a": 1}},
            {"update": "s.t", "key": {"p": 1, "c": 2}, "set": {"b": "x"}},
            {"delete": "s.t", "key": {"p": 1, "c": 3}},
            {"delete": "s.t", "key": {"p": 1}, "range": {"start": {"values": [7]}}},
        ]
    )
    assert [
        ("UPDATE", None),
        ("INSERT", {"c": 1}),
        ("UPDATE", {"c": 2}),
        ("DELETE", {"c": 3}),
        ("DELETE_RANGE", None),
    ] == [(document["op"], document["clustering"]) for document in documents]


def read(tmp_path: Path, *raws: bytes) -> EncodedRecords | None:
    """Read a node's log of *raws* as a job does; None when nothing is delivered of it."""
    logs: dict[str, tuple[bytes, ...]] = {"n1": raws, "n2": (), "n3": ()}
    found = everything(forged_nodes(tmp_path, logs, SCHEMA) | ONE_COPY)
    return found[0].encode("avro") if found else None


def test_b03_tables_with_and_without_cdc(tmp_path: Path) -> None:
    """B03: of a mutation of a CDC table and of another table the CDC part is delivered, once."""
    both = [forged_update(b"k", b"1", table=OTHER), forged_update(b"k", b"2")]
    for number, parts in enumerate((both, both[::-1])):
        made = read(tmp_path / str(number), mutation(*parts), insert(b"k", b"3", table=OTHER))
        assert made is not None
        assert (1, []) == (len(made), list(made.quarantined))


B04 = {
    "a foreign table's bad bytes": (insert(b"k", b"1", table=OTHER)[:-2], 0, []),
    "a CDC table's bad bytes": (insert(b"k", b"1")[:-2], 0, ["bad_mutation"]),
    "an unknown table": (insert(b"k", b"1", table=UNKNOWN), 0, []),
    "a CDC table, then an unknown one": (
        mutation(forged_update(b"k", b"1"), forged_update(b"k", b"2", table=UNKNOWN)),
        1,
        [],
    ),
}


@pytest.mark.parametrize("name", B04)
def test_b04_what_can_be_passed_over(tmp_path: Path, name: str) -> None:
    """B04: data of foreign tables is skipped, CDC data before it is not; bad CDC data is kept."""
    raw, delivered, codes = B04[name]
    good = insert(b"good", b"1")
    made = read(tmp_path, raw, good)
    assert made is not None
    assert (delivered + 1, codes) == (len(made), [lost.code for lost in made.quarantined])


@pytest.mark.parametrize("name", ["5.0-sizes", "5.0-v8-sizes"])
def test_b05_batch_near_the_limit(name: str) -> None:
    """B05: the largest mutations, near half a segment, are read with all their rows and cells."""
    mutations = sorted(recorded_mutations(recording(name)), key=lambda m: m.size_bytes)
    assert mutations[-1].size_bytes > 500_000
    rows = max(mutations, key=lambda m: len(m.changes()))
    documents = [change_document(change) for change in rows.changes()]
    assert 1_500 == len({str(document["clustering"]) for document in documents})


def test_b06_replayed_batches_come_once(tmp_path: Path) -> None:
    """B06: a mutation that the batch log replayed twice on every replica is delivered once."""
    raw = insert(b"k", b"1")
    logs = {node: [raw, insert(b"other", b"2"), raw] for node in ("n1", "n2", "n3")}
    found = everything(forged_nodes(tmp_path, logs, SCHEMA))
    assert 2 == sum(len(batch.encode("avro")) for batch in found)


# --- light-weight transactions and counters


@pytest.mark.parametrize("name", ["4.0-ops", "5.0-ops", "6.0-v9-ops"])
def test_w01_conditional_writes(name: str) -> None:
    """W01: a conditional write that was applied is one change; one that was not is none."""
    folder = recording(name)
    expected: Counter[str] = Counter()
    for statement in statements(folder):
        if statement.get("lwt") and statement.get("applied") is not False:
            key = {c: v["value"] for c, v in statement["key"].items()}
            expected[f"{statement['op']} {key}".lower()] += 1
    assert sum(expected.values()) > 10
    documents = [
        change_document(c) for m in recorded_mutations(folder) for c in m.changes() if not c.range
    ]
    found = Counter(f"{d['op']} {d['key']}".lower() for d in documents)
    assert expected == Counter({place: found[place] for place in expected})
    refused = [s for s in statements(folder) if s.get("applied") is False]
    assert len(refused) > 5
    values = {str(d.get("columns")) for d in documents}
    assert not any("'value': 3, 'ts': 179" in text for text in values)


def test_w02_paxos_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    """W02: Paxos proposals are skipped, and counted under their name; so is the batch log."""
    assert 0 == main(["--stats", str(recording("5.0-ops") / "segments")])
    found = json.loads(capsys.readouterr().out)
    assert found["skipped"]["paxos"]["system.paxos"] > 50
    assert found["skipped"]["batchlog"]["system.batches"] > 10
    assert not any(name.startswith("system") for name in found["changes"])


def test_w03_counters_do_not_disturb_others(capsys: pytest.CaptureFixture[str]) -> None:
    """W03: counters in the same log are skipped by name; changes of other tables are delivered."""
    folder = recording("5.0-ops")
    assert 0 == main(["--stats", str(folder / "segments")])
    found = json.loads(capsys.readouterr().out)
    counters = {s["table"] for s in statements(folder) if s["op"] == "counter"}
    skipped = {name.partition(".")[2]: n for name, n in found["skipped"]["counter"].items()}
    assert counters == skipped.keys()
    assert 6 == sum(skipped.values())
    nodes: dict[str, object] = {
        "nodes": {"n1": str(folder / "segments")},
        "schema": str(folder / "schema.cql"),
    }
    made = [batch.encode("avro") for batch in everything(nodes | ONE_COPY)]
    tables = {table for each in made for table in each.tables}
    assert tables
    assert tables.isdisjoint(found["skipped"]["counter"])


# --- COMPACT STORAGE


_COMPACT = re.compile(r"INSERT INTO (\S+) \((.*)\) VALUES \((.*)\) USING TIMESTAMP (\d+)")


def test_compact_storage() -> None:
    """Rows of COMPACT STORAGE have cells only; null, empty and given clustering values differ."""
    folder = recording("5.0-compact")
    documents = {}
    for change in (c for m in recorded_mutations(folder) for c in m.changes()):
        if change.table.name == statements(folder)[1]["table"]:
            documents[change.timestamp_us] = change_document(change)
    kinds = set()
    for statement in statements(folder):
        found = _COMPACT.match(statement["cql"])
        if found and statement["table"] == statements(folder)[1]["table"]:
            names, values = (found[i].split(", ") for i in (2, 3))
            given = {
                n: v.strip("'") if "'" in v else int(v) for n, v in zip(names, values, strict=True)
            }
            document: Any = documents[int(found[4])]
            assert ("UPDATE", {"k": given["k"]}) == (document["op"], document["key"])
            assert {"a": given["a"], "b": given.get("b")} == document["clustering"]
            assert given["v"] == document["columns"]["v"]["value"]
            kinds.add(given.get("b"))
    assert {None, "", "b"} == kinds
