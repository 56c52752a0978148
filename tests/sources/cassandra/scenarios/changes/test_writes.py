"""Scenarios I, DL and R: inserts, updates, deletions of rows, partitions and ranges."""

from collections import Counter
from typing import Any

import pytest

from headrace.sources.cassandra.mutation.change_json import change_document
from helpers.logs.sample_log import recorded_mutations
from helpers.logs.scenes import NOW_S, NOW_US, Scene
from helpers.recordings.corpora import recording

pytestmark = pytest.mark.hot

KEY_ONLY = "CREATE TABLE s.bare (k int PRIMARY KEY)"
FLAT = "CREATE TABLE s.flat (k int PRIMARY KEY, a int, b text)"
WIDE = (
    "CREATE TABLE s.wide (p int, q text, c int, d text, st text static, a int, b text,"
    " PRIMARY KEY ((p, q), c, d))"
)
ROW = {"p": 1, "q": "x", "c": 2, "d": "y"}
PARTITION = {"p": 1, "q": "x"}


@pytest.fixture
def scene() -> Scene:
    """Return the tables of these scenarios."""
    return Scene(KEY_ONLY, FLAT, WIDE)


def operations(documents: list[dict[str, Any]]) -> list[str]:
    """Return the operation of each document."""
    return [document["op"] for document in documents]


def insert(**values: object) -> dict[str, Any]:
    """Return an INSERT into the wide table."""
    return {"insert": "s.wide", "values": ROW | values}


# --- inserts and updates


def test_i01_insert(scene: Scene) -> None:
    """I01: one row is one INSERT with the columns that were written, and no others."""
    assert {
        "table": "s.wide",
        "op": "INSERT",
        "key": PARTITION,
        "clustering": {"c": 2, "d": "y"},
        "timestamp": NOW_US,
        "columns": {"a": {"value": 5, "ts": NOW_US}},
    } == scene.only(insert(a=5))


@pytest.mark.parametrize("ttl", [None, 42])
def test_i02_update_of_some_columns(scene: Scene, ttl: int | None) -> None:
    """I02: an update has the written columns only, with the TTL if they have one."""
    step: dict[str, Any] = {"update": "s.wide", "key": ROW, "set": {"b": "new"}}
    life = {} if ttl is None else {"ttl": ttl, "expires": NOW_S + ttl}
    found = scene.only(step if ttl is None else step | {"ttl": ttl})
    assert "UPDATE" == found["op"]
    assert {"b": {"value": "new", "ts": NOW_US, **life}} == found["columns"]


@pytest.mark.parametrize("ttl", [None, 42])
def test_i03_insert_and_update_differ(scene: Scene, ttl: int | None) -> None:
    """I03: the same cells are an INSERT with the row's liveness, and an UPDATE without."""
    life = {} if ttl is None else {"ttl": ttl}
    inserted = scene.only({**insert(a=5), **life})
    updated = scene.only({"update": "s.wide", "key": ROW, "set": {"a": 5}, **life})
    assert ("INSERT", "UPDATE") == (inserted["op"], updated["op"])
    assert ("ttl" in inserted, "ttl" in updated) == (ttl is not None, False)


def test_i04_column_set_to_null(scene: Scene) -> None:
    """I04: a column set to null is null in the change; a column that was not set is missing."""
    columns = scene.columns({"update": "s.wide", "key": ROW, "set": {"a": None}})
    assert {"a": {"value": None, "ts": NOW_US}} == columns


def test_i05_composite_keys(scene: Scene) -> None:
    """I05: all parts of a partition key and all clustering columns are in the key, in order."""
    found = scene.only(insert())
    assert [("p", 1), ("q", "x")] == list(found["key"].items())
    assert [("c", 2), ("d", "y")] == list(found["clustering"].items())


def test_i06_table_of_keys_only(scene: Scene) -> None:
    """I06: inserts and deletes of a row that has only its key are changes."""
    documents = scene.documents(
        {"insert": "s.bare", "values": {"k": 1}}, {"delete": "s.bare", "key": {"k": 1}}
    )
    assert ["INSERT", "DELETE_PARTITION"] == operations(documents)
    assert {} == documents[0]["columns"] == documents[0]["clustering"]


def test_i07_many_writes_to_one_key(scene: Scene) -> None:
    """I07: two thousand writes to a key are two thousand changes, in the order of the log."""
    steps = [{"insert": "s.flat", "values": {"k": 1, "a": n}} for n in range(2_000)]
    documents = scene.documents(*steps)
    assert list(range(2_000)) == [document["columns"]["a"]["value"] for document in documents]
    stamps = [document["timestamp"] for document in documents]
    assert stamps == sorted(set(stamps))


def test_i08_equal_timestamps(scene: Scene) -> None:
    """I08: two writes of the same time are two changes, in the order of the log."""
    steps = [{"insert": "s.flat", "values": {"k": 1, "a": n}, "timestamp": 7} for n in (2, 1)]
    documents = scene.documents(*steps)
    assert [(7, 2), (7, 1)] == [(d["timestamp"], d["columns"]["a"]["value"]) for d in documents]


TIMES = {
    "ten days back": NOW_US - 864_000_000_000,
    "ten days ahead": NOW_US + 864_000_000_000,
    "the epoch": 0,
    "before it": -1,
    "the least": -(1 << 63) + 1,
    "the most": (1 << 63) - 1,
    "milliseconds": 1_700_000_000_000,
}


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("messaging", [12, 13, 14])
def test_i09_any_write_time(scene: Scene, name: str, messaging: int) -> None:
    """I09: any write time of 64 bits is kept, for rows and for deletions."""
    at_us = TIMES[name]
    now = {"timestamp": at_us, "now": NOW_S}
    steps: list[Any] = [
        {**insert(a=1), **now},
        {"update": "s.wide", "key": ROW, "set": {"b": None}, **now},
        {"delete": "s.wide", "key": ROW, **now},
        {"delete": "s.wide", "key": PARTITION, **now},
        {"delete": "s.wide", "key": PARTITION, "range": {"start": {"values": [1]}}, **now},
    ]
    documents = scene.documents(*steps, messaging=messaging)
    assert [at_us] * 5 == [document["timestamp"] for document in documents]
    cells = [document["columns"][name] for document, name in zip(documents, "ab", strict=False)]
    assert [at_us] * 2 == [cell["ts"] for cell in cells]


@pytest.mark.parametrize("name", ["5.0-sizes", "5.0-v8-sizes"])
def test_i10_bulk(name: str) -> None:
    """I10: each of 1,500 rows in one mutation is a change, also in mutations near the limit."""
    counted: Counter[int] = Counter()
    largest = 0
    for mutation in recorded_mutations(recording(name)):
        documents = [change_document(change) for change in mutation.changes()]
        places = {str((d["key"], d["clustering"], d["op"])) for d in documents}
        assert len(places) == len(documents)
        counted[len(documents)] += 1
        largest = max(largest, mutation.size_bytes)
    assert 1_500 == max(counted)
    assert 500_000 < largest <= 524_288 - 12  # Half of a segment of one MiB, without the frame.


# --- deletions


@pytest.mark.parametrize("static", [False, True])
def test_dl01_row_deletion(scene: Scene, static: bool) -> None:  # noqa: FBT001 (a case)
    """DL01: a row's deletion has the whole primary key and no values, beside a static write too."""
    steps: list[dict[str, Any]] = [{"delete": "s.wide", "key": ROW}]
    if static:
        steps.append({"update": "s.wide", "key": PARTITION, "set": {"st": "s"}})
    documents = scene.documents(steps)
    assert {
        "table": "s.wide",
        "op": "DELETE",
        "key": PARTITION,
        "clustering": {"c": 2, "d": "y"},
        "timestamp": NOW_US,
    } == documents[-1]
    assert ["UPDATE"] * static + ["DELETE"] == operations(documents)


def test_dl02_partition_deletion(scene: Scene) -> None:
    """DL02: a partition's deletion has no clustering."""
    found = scene.only({"delete": "s.wide", "key": PARTITION})
    assert ("DELETE_PARTITION", None) == (found["op"], found["clustering"])
    assert {"columns", "range"}.isdisjoint(found)


def test_dl03_partition_deletion_without_clustering_columns(scene: Scene) -> None:
    """DL03: in a table without clustering columns the only row is deleted as its partition."""
    found = scene.only({"delete": "s.flat", "key": {"k": 1}})
    assert ("DELETE_PARTITION", {"k": 1}) == (found["op"], found["key"])


def test_dl04_partition_deletion_of_a_composite_key(scene: Scene) -> None:
    """DL04: a partition deletion has all parts of a composite key."""
    assert PARTITION == scene.only({"delete": "s.wide", "key": PARTITION})["key"]


def test_dl05_row_deletion_then_insert_in_one_mutation(scene: Scene) -> None:
    """DL05: a row deleted and written again in one mutation is a DELETE, then an INSERT."""
    documents = scene.documents([{"delete": "s.wide", "key": ROW}, insert(a=1)])
    assert [("DELETE", NOW_US), ("INSERT", NOW_US + 1)] == [
        (d["op"], d["timestamp"]) for d in documents
    ]
    assert documents[0]["clustering"] == documents[1]["clustering"]


def test_dl06_partition_deletion_then_inserts(scene: Scene) -> None:
    """DL06: a partition deletion comes first, then the newer rows in clustering order."""
    rows = [{**insert(a=c), "values": ROW | {"c": c, "a": c}, "ttl": 60} for c in (1, 2, 3)]
    documents = scene.documents([{"delete": "s.wide", "key": PARTITION}, *rows])
    assert ["DELETE_PARTITION", "INSERT", "INSERT", "INSERT"] == operations(documents)
    assert [1, 2, 3] == [document["clustering"]["c"] for document in documents[1:]]
    assert [60] * 3 == [document["ttl"] for document in documents[1:]]


def test_dl07_deletion_of_what_is_not_there(scene: Scene) -> None:
    """DL07: a deletion is a change whether or not the row existed, which the log does not say."""
    assert "DELETE" == scene.only({"delete": "s.wide", "key": ROW})["op"]


def test_dl08_expiry_is_not_a_deletion(scene: Scene) -> None:
    """DL08: a row that expires gives one INSERT with its expiry, and never a DELETE."""
    found = scene.only({**insert(a=1), "ttl": 1, "now": 1_000})
    assert ("INSERT", 1, 1_001) == (found["op"], found["ttl"], found["expires"])


# --- ranges


def ranged(scene: Scene, start: object, end: object, **key: object) -> dict[str, Any]:
    """Return the change of a range deletion."""
    sides = {name: side for name, side in (("start", start), ("end", end)) if side is not None}
    found = scene.only({"delete": "s.wide", "key": PARTITION | key, "range": sides})
    assert ("DELETE_RANGE", None, PARTITION) == (found["op"], found["clustering"], found["key"])
    deleted: dict[str, Any] = found["range"]
    return deleted


@pytest.mark.parametrize("start_in", [True, False])
@pytest.mark.parametrize("end_in", [True, False])
def test_r01_slice(scene: Scene, start_in: bool, end_in: bool) -> None:  # noqa: FBT001 (cases)
    """R01: a slice has both bounds, each with whether it is in."""
    start = {"values": [1], "inclusive": start_in}
    end = {"values": [1, "m"], "inclusive": end_in}
    assert {"start": start, "end": end} == ranged(scene, start, end)


def test_r02_open_slice(scene: Scene) -> None:
    """R02: a missing bound is null; `c > 5` has only a start."""
    bound = {"values": [5], "inclusive": False}
    assert {"start": bound, "end": None} == ranged(scene, bound, None)
    assert {"start": None, "end": bound} == ranged(scene, None, bound)


def test_r03_prefix_bounds(scene: Scene) -> None:
    """R03: a bound has values of its prefix only, with the types of the columns."""
    start = {"values": [7], "inclusive": True}
    end = {"values": [7, "käse"], "inclusive": True}
    assert {"start": start, "end": end} == ranged(scene, start, end)


def test_r04_range_and_static(scene: Scene) -> None:
    """R04: a static write and a range deletion in one mutation are two changes, static first."""
    bounds = {"start": {"values": [1]}, "end": {"values": [5]}}
    static = {"update": "s.wide", "key": PARTITION, "set": {"st": "s"}}
    documents = scene.documents([{"delete": "s.wide", "key": PARTITION, "range": bounds}, static])
    assert ["UPDATE", "DELETE_RANGE"] == operations(documents)
    assert documents[0]["static"] is True


def markers(*items: dict[str, Any]) -> dict[str, Any]:
    """Return a mutation of range markers, as mutation JSON, for the partition (1, 'x')."""
    key = "00040000000100" + "00017800"
    return {"updates": [{"table": "s.wide", "key": key, "items": list(items)}]}


def marker(kind: str, value: int | None, **times: int) -> dict[str, Any]:
    """Return a marker at a value of `c`; `close` and `open` are times of deletions."""
    values = [] if value is None else [value.to_bytes(4, "big").hex()]
    sides = {side: {"ts": ts, "ldt": NOW_S} for side, ts in times.items()}
    return {"marker": kind, "values": values, **sides}


@pytest.mark.parametrize(
    ("boundary", "end_in", "start_in"),
    [("EXCL_END_INCL_START", False, True), ("INCL_END_EXCL_START", True, False)],
)
def test_r05_adjacent_ranges(scene: Scene, boundary: str, end_in: bool, start_in: bool) -> None:  # noqa: FBT001 (cases)
    """R05: ranges that meet in a boundary are two changes, each with its own time."""
    documents = scene.documents(
        markers(
            marker("INCL_START_BOUND", None, open=5),
            marker(f"{boundary}_BOUNDARY", 5, close=5, open=9),
            marker("INCL_END_BOUND", None, close=9),
        )
    )
    first = {"start": None, "end": {"values": [5], "inclusive": end_in}}
    second = {"start": {"values": [5], "inclusive": start_in}, "end": None}
    assert [(first, 5), (second, 9)] == [(d["range"], d["timestamp"]) for d in documents]


def test_r06_disjoint_ranges(scene: Scene) -> None:
    """R06: two ranges apart from each other are two changes with their own bounds."""
    documents = scene.documents(
        [
            {
                "delete": "s.wide",
                "key": PARTITION,
                "range": {side: {"values": [v]} for side, v in b},
            }
            for b in ((("start", 1), ("end", 2)), (("start", 5), ("end", 6)))
        ]
    )
    bounds = [tuple(d["range"][side]["values"][0] for side in ("start", "end")) for d in documents]
    assert [(1, 2), (5, 6)] == bounds


def test_r07_range_and_a_row_inside(scene: Scene) -> None:
    """R07: a range deletion comes before the newer row inside the range."""
    row = {
        "clustering": ["00000003", "79"],
        "liveness": {"ts": 9},
        "columns": {"a": {"ts": 9, "value": "00000001"}},
    }
    documents = scene.documents(
        markers(marker("INCL_START_BOUND", 1, open=5), row, marker("INCL_END_BOUND", 5, close=5))
    )
    assert [("DELETE_RANGE", 5), ("INSERT", 9)] == [(d["op"], d["timestamp"]) for d in documents]


def test_r08_descending_clustering(scene: Scene) -> None:
    """R08: bounds are in clustering order: of a descending column the start is the larger value."""
    down = Scene(
        "CREATE TABLE s.t (k int, c int, d int, PRIMARY KEY (k, c, d))"
        " WITH CLUSTERING ORDER BY (c DESC, d ASC)"
    )
    start, end = {"values": [5], "inclusive": False}, {"values": [1, 3], "inclusive": True}
    step = {"delete": "s.t", "key": {"k": 1}, "range": {"start": start, "end": end}}
    assert {"start": start, "end": end} == down.only(step)["range"]
    del scene


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130, 200])
@pytest.mark.parametrize("messaging", [12, 13])
def test_subsets_of_columns_both_ways(count: int, messaging: int) -> None:
    """Rows with few, half, most and all columns of a header keep their columns (section 7)."""
    names = [f"v{i:03}" for i in range(count)]
    scene = Scene(
        f"CREATE TABLE s.t (k int, c int, {', '.join(f'{n} int' for n in names)},"
        " PRIMARY KEY (k, c))"
    )
    chosen = {
        0: names,
        1: names[:1],
        2: names[-1:],
        3: names[::2],
        4: names[1:],
        5: names[: count // 2 - 1],
        6: names[: count // 2],
        7: [],
    }
    rows = [
        {
            "insert": "s.t",
            "values": {"k": 1, "c": c} | {n: i for i, n in enumerate(names) if n in some},
        }
        for c, some in chosen.items()
    ]
    documents = scene.documents(rows, messaging=messaging)
    for document, some in zip(documents, chosen.values(), strict=True):
        found = {name: column["value"] for name, column in document["columns"].items()}
        assert {name: names.index(name) for name in some} == found
