"""Lists as a real node has them: `lists: read` of a live stream, and what a query may meet."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from cassandra.cluster import Session

from headrace.connector.foundation.clock import SystemClock
from headrace.plugins import Batch, Demand, parse_config
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.encode.change_record import ChangeRecord
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.mutation.values import to_python
from headrace.sources.cassandra.reading.list_query import CqlLists
from headrace.sources.cassandra.reading.lists import (
    ListsRefusedError,
    ListsUnreadError,
    ListValue,
    RowName,
    Wanted,
)
from headrace.sources.cassandra.schema.contact import Contact
from headrace.sources.cassandra.schema.live import read_live_schema
from headrace.sources.cassandra.source import CassandraSource
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real

SECONDS_MAX: Final = 600
STATEMENTS: Final = (
    (
        "CREATE KEYSPACE listed WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    ),
    (
        "CREATE TABLE listed.t (k int, c text, l list<int>, s list<text> static, v int, "
        "PRIMARY KEY (k, c)) WITH cdc = true"
    ),
)
WRITES: Final = (
    "INSERT INTO listed.t (k, c, l, v) VALUES (1, 'a', [1, 2], 1)",
    "UPDATE listed.t SET l = l + [3] WHERE k = 1 AND c = 'a'",
    "UPDATE listed.t SET l = [0] + l WHERE k = 1 AND c = 'a'",
    "UPDATE listed.t SET l[1] = 11 WHERE k = 1 AND c = 'a'",
    "DELETE l[2] FROM listed.t WHERE k = 1 AND c = 'a'",
    "UPDATE listed.t SET v = 2 WHERE k = 1 AND c = 'a'",
    "UPDATE listed.t SET s = ['x'] WHERE k = 1",
    "UPDATE listed.t SET s = s + ['y'] WHERE k = 1",
    "INSERT INTO listed.t (k, c, l) VALUES (1, 'gone', [5])",
    "DELETE FROM listed.t WHERE k = 1 AND c = 'gone'",
    "UPDATE listed.t USING TTL 5000 SET l = l + [9] WHERE k = 2 AND c = 'b'",
)


def changes(options: Mapping[str, object], count: int) -> list[ChangeRecord]:
    """Return what comes of a table until it is *count*."""
    source = CassandraSource(
        parse_config(CassandraConfig, options), replace(context(), clock=SystemClock())
    )
    (split,) = source.plan()
    reader = source.open(split, None)
    found: list[ChangeRecord] = []
    until = time.monotonic() + SECONDS_MAX
    while len(found) < count and time.monotonic() < until:
        batch = reader.read(Demand())
        if isinstance(batch, Batch):
            found += [record for record in batch.records() if isinstance(record, ChangeRecord)]
    source.close()
    return found


def test_lists_are_reported_as_the_table_has_them(node: Cassandra, session: Session) -> None:
    """C04: every change of a list tells all of it, and a consumer's fold is the table."""
    for statement in (*STATEMENTS, *WRITES):
        session.execute(statement)
    options = {
        "nodes": {"node1": str(node.cdc_raw)},
        "contact_points": [f"{node.host}:{node.port}"],
        "tables": ["listed.t"],
        "consistency": "ONE",
        "splits": 1,
        "streamed": "publish",
        "lists": "read",
    }

    records = changes(options, len(WRITES))

    assert len(WRITES) == len(records)
    reported = [
        (d["key"]["k"], d["clustering"], d.get("columns", {})) for d in map(document, records)
    ]
    lists = [
        (k, clustering and clustering["c"], columns[name]["value"])
        for k, clustering, columns in reported
        for name in ("l", "s")
        if name in columns
    ]
    whole = [(1, "a", [0, 11, 3])] * 5 + [(1, None, ["x", "y"])] * 2
    assert [*whole, (1, "gone", None), (2, "b", [9])] == lists
    assert len(lists) == sum("lists" in d for d in map(document, records))
    fold = Fold(records[0].change.table)
    for record in records:
        fold.add(record.change)
    rows = {json.dumps(row, sort_keys=True) for row in fold.rows(int(time.time()))}
    table = session.execute("SELECT JSON * FROM listed.t")
    assert {json.dumps(json.loads(row[0]), sort_keys=True) for row in table} == rows


def document(record: ChangeRecord) -> dict[str, Any]:  # Any: JSON.
    """Return a change as JSON has it."""
    return dict(record.document())


def test_what_a_query_may_meet(node: Cassandra, session: Session) -> None:
    """Rows and columns that are gone, times to live, too few replicas, none, a refusal."""
    points = Contact((f"{node.host}:{node.port}",))
    session.execute("CREATE TABLE listed.u (k text PRIMARY KEY, l list<text>, old list<int>)")
    session.execute("INSERT INTO listed.u (k, l) VALUES ('a', ['p']) USING TTL 5000")
    session.execute("UPDATE listed.u SET l = l + ['q'] WHERE k = 'a'")
    table = read_live_schema(points).table("listed.u")
    assert table is not None
    whole, old = (next(c for c in table.columns if c.name == name) for name in ("l", "old"))
    session.execute("ALTER TABLE listed.u DROP old")

    def wanted(key: str, *columns: object) -> Wanted:
        return Wanted(table, RowName(table.table_id, (key.encode(),), ()), columns)  # type: ignore[arg-type]

    query = CqlLists(points, consistency="ONE", concurrency=4, seconds_max=20)
    there, gone, dropped = query.read([wanted("a", whole), wanted("b", whole), wanted("a", old)])
    query.close()

    assert isinstance(there, dict)
    found = there["l"]
    assert ["p", "q"] == to_python(whole.type, found.raw or b"")
    assert [True, False] == [ttl is not None for ttl in found.ttls_s]
    assert {"l": ListValue(None)} == gone
    assert {"old": ListValue(None)} == dropped

    query = CqlLists(points, consistency="TWO", concurrency=4, seconds_max=20)
    (few,) = query.read([wanted("a", whole)])
    query.close()
    assert isinstance(few, ListsUnreadError)
    assert "Unavailable" in few.message

    nobody = CqlLists(Contact(("127.0.0.1:1",)), consistency="ONE", concurrency=4, seconds_max=1)
    (away,) = nobody.read([wanted("a", whole)])
    assert isinstance(away, ListsUnreadError)

    wrong = Wanted(table, RowName(table.table_id, (), ()), (whole,))  # No key at all.
    query = CqlLists(points, consistency="ONE", concurrency=4, seconds_max=20)
    (refused,) = query.read([wrong])
    query.close()
    assert isinstance(refused, ListsRefusedError)
