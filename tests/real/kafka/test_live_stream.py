"""A live Cassandra into a live Kafka: what a plain consumer gets is what was written."""

import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from uuid import UUID

import pytest
from cassandra.cluster import Session

from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.logs.pins import FOLDER
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from real.servers.cassandra import Cassandra
from real.stream import Json, Listener, Worker, completed_segments, durable_offset, fact, fact_of

pytestmark = pytest.mark.real

SECONDS_MAX = 600
FILLERS = 4_000
FILLER = "x" * 700  # Together some three segments.
T = 1_700_000_000_000_000
KEY = {"id": 1, "seq": 1}

TABLES = (
    "CREATE KEYSPACE live WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE live.person (name text, age int)",
    (
        "CREATE TABLE live.orders (id int, seq int, name text, age int, tags set<text>, "
        "attrs map<text, int>, items list<text>, note text static, PRIMARY KEY (id, seq)) "
        "WITH cdc = true"
    ),
    (
        "CREATE TABLE live.types (k text PRIMARY KEY, a ascii, bi bigint, bl blob, bo boolean, "
        "d date, de decimal, do double, du duration, f float, i inet, s smallint, ti time, "
        "ts timestamp, tu timeuuid, ty tinyint, u uuid, v varint, tp tuple<int, text>, "
        "fl frozen<list<frozen<set<int>>>>, p person, fp frozen<person>, vec vector<float, 3>) "
        "WITH cdc = true"
    ),
    "CREATE TABLE live.plain (id int PRIMARY KEY, name text)",
)
TYPES = {
    "a": ("'x'", "x"),
    "bi": ("9223372036854775807", 2**63 - 1),
    "bl": ("0x00ff", b"\x00\xff"),
    "bo": ("true", True),
    "d": ("'2026-11-21'", (date(2026, 11, 21) - date(1970, 1, 1)).days),
    "de": ("-12.340", {"scale": 3, "unscaled": b"\xcf\xcc"}),
    "do": ("0.1", 0.1),
    "du": ("1mo2d3ns", {"months": 1, "days": 2, "nanoseconds": 3}),
    "f": ("1.5", 1.5),
    "i": ("'127.0.0.1'", "127.0.0.1"),
    "s": ("-3", -3),
    "ti": ("'12:00:00'", 43_200_000_000_000),
    "ts": ("'2026-01-02T03:04:05.678Z'", 1_767_323_045_678),
    "tu": (
        "50554d6e-29bb-11e5-b345-feff819cdc9f",
        UUID("50554d6e-29bb-11e5-b345-feff819cdc9f"),
    ),
    "ty": ("-128", -128),
    "u": (
        "123e4567-e89b-42d3-a456-426614174000",
        UUID("123e4567-e89b-42d3-a456-426614174000"),
    ),
    "v": ("1208925819614629174706176", b"\x01" + bytes(10)),
    "tp": ("(1, null)", {"field_0": 1, "field_1": None}),
    "fl": ("[{1, 2}, {}]", [[1, 2], []]),
    "p": (
        "{name: 'Ann', age: 7}",
        {"replace": {"name": ["Ann", False], "age": [7, False]}},
    ),
    "fp": ("{name: 'Ann', age: 7}", {"name": "Ann", "age": 7}),
    "vec": ("[1, 2, 3]", [1.0, 2.0, 3.0]),
}


def order(operation: str, timestamp: int, payload: Json, **rest: object) -> bytes:
    """Return a change of `live.orders`."""
    return fact("live.orders", operation, timestamp, payload, **rest)  # type: ignore[arg-type]  # Options of fact.


def bound(seq: int, *, inclusive: bool) -> Json:
    """Return one side of a range of `live.orders`."""
    return {"values": {"seq": seq}, "count": 1, "inclusive": inclusive}


# Each statement, and what a consumer must learn of it.
WRITTEN: tuple[tuple[str, bytes | None], ...] = (
    (
        (
            "INSERT INTO live.orders (id, seq, name, age, tags, attrs, items) VALUES "
            "(1, 1, 'Ann', 30, {'a', 'b'}, {'x': 1}, ['p', 'q']) USING TIMESTAMP 1700000000000001"
        ),
        order(
            "INSERT",
            T + 1,
            {
                **KEY,
                "name": "Ann",
                "age": 30,
                "tags": {"replace": [["a", None, False], ["b", None, False]]},
                "attrs": {"replace": [["x", 1, False]]},
                "items": {"replace": [["*", "p", False], ["*", "q", False]]},
            },
            fields=["age", "attrs", "items", "name", "tags"],
        ),
    ),
    (
        "UPDATE live.orders USING TIMESTAMP 1700000000000002 SET age = 31 WHERE id = 1 AND seq = 1",
        order("UPDATE", T + 2, {**KEY, "age": 31}, fields=["age"]),
    ),
    (
        (
            "UPDATE live.orders USING TIMESTAMP 1700000000000003 SET tags = tags + {'c'}, "
            "attrs['y'] = 2 WHERE id = 1 AND seq = 1"
        ),
        order(
            "UPDATE",
            T + 3,
            {
                **KEY,
                "tags": {"merge": [["c", None, False]]},
                "attrs": {"merge": [["y", 2, False]]},
            },
            fields=["attrs", "tags"],
        ),
    ),
    (
        (
            "UPDATE live.orders USING TIMESTAMP 1700000000000004 SET tags = tags - {'a'}, "
            "attrs = attrs - {'x'} WHERE id = 1 AND seq = 1"
        ),
        order(
            "UPDATE",
            T + 4,
            {
                **KEY,
                "tags": {"merge": [["a", None, True]]},
                "attrs": {"merge": [["x", None, True]]},
            },
            fields=["attrs", "tags"],
        ),
    ),
    (
        (
            "UPDATE live.orders USING TIMESTAMP 1700000000000005 SET name = null WHERE id = 1 "
            "AND seq = 1"
        ),
        order("UPDATE", T + 5, KEY, fields=["name"]),
    ),
    (
        (
            "UPDATE live.orders USING TIMESTAMP 1700000000000006 AND TTL 3600 SET name = 'Bob' "
            "WHERE id = 1 AND seq = 1"
        ),
        order(
            "UPDATE", T + 6, {**KEY, "name": "Bob"}, fields=["name"], notes=[["name", None, 3600]]
        ),
    ),
    (
        (
            "INSERT INTO live.orders (id, seq, name) VALUES (1, 2, 'Cid') "
            "USING TIMESTAMP 1700000000000007 AND TTL 600"
        ),
        order("INSERT", T + 7, {"id": 1, "seq": 2, "name": "Cid"}, fields=["name"], ttl=600),
    ),
    (
        "INSERT INTO live.orders (id, note) VALUES (1, 'hi') USING TIMESTAMP 1700000000000008",
        order("UPDATE", T + 8, {"id": 1, "note": "hi"}, fields=["note"], static=True),
    ),
    (
        "DELETE age FROM live.orders USING TIMESTAMP 1700000000000009 WHERE id = 1 AND seq = 1",
        order("UPDATE", T + 9, KEY, fields=["age"]),
    ),
    (
        "DELETE FROM live.orders USING TIMESTAMP 1700000000000010 WHERE id = 1 AND seq = 1",
        order("DELETE", T + 10, KEY),
    ),
    (
        (
            "DELETE FROM live.orders USING TIMESTAMP 1700000000000011 WHERE id = 1 AND seq >= 2 "
            "AND seq < 5"
        ),
        order(
            "DELETE_RANGE",
            T + 11,
            {"id": 1},
            deleted={"start": bound(2, inclusive=True), "end": bound(5, inclusive=False)},
        ),
    ),
    (
        "DELETE FROM live.orders USING TIMESTAMP 1700000000000012 WHERE id = 1 AND seq > 7",
        order(
            "DELETE_RANGE",
            T + 12,
            {"id": 1},
            deleted={"start": bound(7, inclusive=False), "end": None},
        ),
    ),
    (
        "DELETE FROM live.orders USING TIMESTAMP 1700000000000013 WHERE id = 2",
        order("DELETE_PARTITION", T + 13, {"id": 2}),
    ),
    (
        (
            "BEGIN BATCH USING TIMESTAMP 1700000000000014 "
            "INSERT INTO live.orders (id, seq, age) VALUES (3, 9, 1); "
            "INSERT INTO live.plain (id, name) VALUES (3, 'unseen'); APPLY BATCH"
        ),
        order("INSERT", T + 14, {"id": 3, "seq": 9, "age": 1}, fields=["age"]),
    ),
    (
        "INSERT INTO live.plain (id, name) VALUES (4, 'unseen') USING TIMESTAMP 1700000000000015",
        None,
    ),
    (
        (
            f"INSERT INTO live.types (k, {', '.join(TYPES)}) VALUES "  # noqa: S608 (ours)
            f"('all', {', '.join(cql for cql, _ in TYPES.values())}) USING TIMESTAMP {T + 16}"
        ),
        fact(
            "live.types",
            "INSERT",
            T + 16,
            {"k": "all"} | {name: value for name, (_, value) in TYPES.items()},
            fields=list(TYPES),
        ),
    ),
)


@dataclass
class Watch:
    """What is seen while the stream runs: I6 of each message, I5 of each segment that goes."""

    cdc_raw: Path
    state: Path
    received: "Counter[bytes]" = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)

    def step(self, listener: Listener) -> None:
        """Take what has come, and look at the directory."""
        for value in listener.receive():
            durable = durable_offset(self.cdc_raw, value["segment"])
            assert durable is None or value["position"] <= durable
            for cell in (value["payload"].get("items") or {}).get("cells", ()):
                cell["key"] = "*"  # A list's keys are times.
            self.received[fact_of(value)] += 1
        self.completed |= completed_segments(self.cdc_raw)
        # One may go before it is seen that Cassandra is done with it.
        there = {
            int(path.stem.rpartition("-")[2]) for path in self.cdc_raw.glob("CommitLog-7-*.log")
        }
        gone = self.seen - there
        self.seen |= there
        if gone - self.gone:
            assert Marker(max(gone), END_OFFSET) <= self._committed()
            self.gone = gone

    def _committed(self) -> Marker:
        """Return from where on a split may still have to read, as committed."""
        store = SqliteStore.open(self.state, "live", create=False)
        positions = [state.position for state in store.states()]
        store.close()
        assert all(positions)
        states = [CdcState.decode(position) for position in positions if position]
        return min(state.markers["node1"] for state in states)


def test_what_was_written_is_what_is_received(
    session: Session, node: Cassandra, bootstrap_servers: str, tmp_path: Path
) -> None:
    """Every change of CDC tables comes exactly once, nothing undurable, and SIGTERM ends in 0."""
    job = {
        "job": "live",
        "state": str(tmp_path / "state.db"),
        "source": {
            "plugin": "cassandra",
            "contact_points": f"{node.host}:{node.port}",
            "tables": ["live.orders", "live.types"],  # Other tests write to the same node.
            "streamed": "publish",
            "consistency": "ONE",
            "nodes": {"node1": str(node.cdc_raw)},
            "disposal": "delete",
        },
        "sink": {"plugin": "kafka", "bootstrap.servers": bootstrap_servers, "topic": "live"},
    }
    # The jobs of other tests are gone, and what they noted as needed would never go.
    shutil.rmtree(node.cdc_raw / FOLDER, ignore_errors=True)
    for statement in TABLES:
        session.execute(statement)
    expected = Counter(said for _, said in WRITTEN if said is not None)
    listener = Listener(bootstrap_servers, "live", tmp_path / "state.db")
    watch = Watch(node.cdc_raw, tmp_path / "state.db")
    with Worker(job, tmp_path) as worker:
        for statement, _ in WRITTEN:
            session.execute(statement)
            watch.step(listener)
        insert = session.prepare(
            "INSERT INTO live.orders (id, seq, name) VALUES (7, ?, ?) USING TIMESTAMP ?"
        )
        writes = []
        for seq in range(FILLERS):
            writes.append(session.execute_async(insert, (seq, FILLER, T + 100 + seq)))
            payload = {"id": 7, "seq": seq, "name": FILLER}
            expected[order("INSERT", T + 100 + seq, payload, fields=["name"])] += 1
            if not seq % 500:
                watch.step(listener)
        for write in writes:
            write.result()
        deadline = time.monotonic() + SECONDS_MAX
        done = False
        while not done and time.monotonic() < deadline and worker.running():
            watch.step(listener)
            everything = watch.received.total() >= expected.total()
            done = everything and len(watch.gone) >= 2 and watch.gone >= watch.completed
        assert worker.running(), worker.log.read_text()[-2000:]
        assert (Counter(), Counter()) == (expected - watch.received, watch.received - expected)
        assert len(watch.gone) >= 2
        assert worker.stop() == 0
    with Worker(job, tmp_path, "--until-idle") as again:
        assert again.wait() == 0
    assert expected.total() == listener.published()
    listener.close()
