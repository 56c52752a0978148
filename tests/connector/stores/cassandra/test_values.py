"""The rows in Cassandra: what every backend must do, and what a commit asks of a node."""

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from headrace.connector.stores import Commit, StateLostError, TableCounts
from headrace.connector.stores.cassandra import cdc_state
from headrace.connector.stores.cassandra.session import CassandraSession, CassandraStoreConfig
from headrace.connector.stores.cassandra.store import CassandraStore
from headrace.connector.stores.cassandra.values import CassandraValues
from headrace.connector.stores.keyed.rows import Head, JobRow, pack
from headrace.plugins import EncodedPosition, TokenRange
from headrace.plugins.testing import KeyValueSuite
from headrace.plugins.testing.key_value_suite import Open
from helpers.servers.cql_node import (
    BIGINT,
    BLOB,
    BOOLEAN,
    SMALLINT,
    TEXT,
    VARINT,
    VOID,
    CqlNode,
    rows,
)
from helpers.stores.drivers import MADE

SPLITS = ("1-of-2", "2-of-2")
HEAD = Head(plan=1, token=7, owner="w1", seq=4, position=b"", chunks={})
JOB = JobRow(key=bytes(16), plan=1, splits=list(SPLITS))
ROW = {"stamp": BIGINT, "value": BLOB}
READ = "SELECT stamp, value FROM"
ANSWERS = {
    **MADE,
    READ: rows(ROW, [bytes(7) + b"\7", pack(HEAD)]),
    "UPDATE decided": rows({"[applied]": BOOLEAN}, [b"\1"]),
    "INSERT INTO plain": VOID,
    "INSERT INTO cdc_state": VOID,
}
BINDS = {
    READ: (TEXT, TEXT),
    "SELECT value FROM": (TEXT, TEXT),
    "UPDATE decided": (BIGINT, BLOB, TEXT, TEXT, BIGINT),
    "INSERT INTO plain": (TEXT, TEXT, BLOB),
    "INSERT INTO cdc_state": (TEXT, SMALLINT, VARINT, VARINT, BLOB),
}


class TestCassandraValues(KeyValueSuite):
    """The backend passes the suite of backends, over a node that decides conditions."""

    @pytest.fixture
    def opened(self, one_session: Callable[[], CassandraValues]) -> Open:
        """Return what connects to tables without rows."""
        return one_session


def commit(split: str) -> Commit:
    """Return the commit of a state with one chunk, after the one that is stored."""
    return Commit(
        split=split,
        plan=1,
        token=7,
        owner="w1",
        previous=4,
        seq=5,
        position=EncodedPosition(b"tau 1", {"c1": b"records"}),
        counters={"shop.orders": TableCounts(cut=1, delivered=1)},
        losses=(),
        tokens=TokenRange(number=1, first=-(1 << 63), behind=0),
    )


def opened(node: CqlNode) -> CassandraStore:
    """Return a store on *node* that knows the job's key."""
    config = CassandraStoreConfig(contact_points=(node.point,))
    store = CassandraStore(CassandraValues(CassandraSession(config, create=False)), "job")
    store._publisher._key = JOB.key  # noqa: SLF001 (one row answers all reads)
    return store


def test_a_commit_of_time_alone_is_one_statement() -> None:
    """Line 32: it is a compare-and-set of the head; nothing is read, no chunk is written."""
    with CqlNode(answers=ANSWERS, binds=BINDS) as node:
        store = opened(node)
        first = [commit(split) for split in SPLITS]
        assert {} == store.commit(first)
        later = [
            replace(
                each,
                previous=each.seq,
                seq=each.seq + 1,
                position=replace(each.position, head=b"tau 2"),
            )
            for each in first
        ]
        assert {} == store.commit(later)
        store.close()

    asked = Counter(" ".join(each.split()[:3]) for each in node.executed)
    expected = {"SELECT stamp, value": 2, "INSERT INTO plain": 2, "UPDATE decided SET": 2 + 2}
    assert expected == {each: asked[each] for each in expected}
    assert {"SELECT config FROM", "INSERT INTO cdc_state"} == asked.keys() - expected.keys()


def test_a_chunk_that_is_named_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays in the list of the head; only the copy for those who look asks for its bytes."""
    monkeypatch.setattr(cdc_state, "PUBLISH_SECONDS", 0)
    answers = {**ANSWERS, "SELECT value FROM": rows({"value": BLOB}, [b"records"])}
    with CqlNode(answers=answers, binds=BINDS) as node:
        store = opened(node)
        first = commit("1-of-2")
        assert {} == store.commit([first])
        later = replace(
            first,
            previous=first.seq,
            seq=first.seq + 1,
            position=EncodedPosition(b"tau 2", {}, frozenset({"c1"})),
        )
        assert {} == store.commit([later])
        gone = replace(
            later,
            previous=later.seq,
            seq=later.seq + 1,
            position=EncodedPosition(b"tau 3", {}, frozenset({"c0", "c1"})),
        )
        refused = store.commit([gone])["1-of-2"]
        store.close()

    assert isinstance(refused, StateLostError)
    assert "chunk c0, kept from an earlier commit, is missing" in str(refused)
    asked = Counter(" ".join(each.split()[:3]) for each in node.executed)
    statements = ("INSERT INTO plain", "UPDATE decided SET", "SELECT value FROM")
    assert (1, 2, 1) == tuple(asked[each] for each in statements)
