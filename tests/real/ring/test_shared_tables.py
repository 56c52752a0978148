"""Several first workers make the shared tables at once, through three nodes."""

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

import pytest

from headrace.connector.history.store import rows
from headrace.connector.history.store.contract import Name
from headrace.connector.history.store.rows import ALL, HistoryRows, Left, State
from headrace.connector.stores.cassandra.session import (
    TABLES,
    CassandraSession,
    CassandraStoreConfig,
)
from real.servers.cassandra import Cassandra
from real.servers.ring import Ring

pytestmark = pytest.mark.real

KEYSPACE = "raced"
PER_NODE = 2
SECONDS_MAX = 120


def test_tables_that_all_make_at_once_are_one_of_each(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node has the same id of each, and what one wrote is read through the others."""
    monkeypatch.setattr(rows, "SWEEP_ROWS", 20)
    together = Barrier(len(ring.nodes) * PER_NODE)

    def make(node: Cassandra) -> CassandraSession:
        config = CassandraStoreConfig(
            contact_points=(f"{node.host}:{node.port}",),
            keyspace=KEYSPACE,
            request_seconds_max=30,
        )
        together.wait(SECONDS_MAX)
        try:
            session = CassandraSession(config, create=True)
        except BaseException:
            together.abort()
            raise
        together.wait(SECONDS_MAX)
        HistoryRows(session).make()
        return session

    with ThreadPoolExecutor(len(ring.nodes) * PER_NODE) as pool, contextlib.ExitStack() as stack:
        futures = [pool.submit(make, node) for node in ring.nodes * PER_NODE]
        errors = [future.exception() for future in futures]
        assert [] == [each for each in errors if not isinstance(each, BrokenBarrierError | None)]
        made = [stack.enter_context(contextlib.closing(future.result())) for future in futures]
        names = [(b"%d" % number, b"") for number in range(30)]  # One row of several keys,
        names += [(b"0", b"%d" % number) for number in range(30)]  # several of one,
        names += [(b"k%d" % number, b"r%d" % number) for number in range(30)]  # and others.
        for number, session in enumerate(made):
            mine = dict.fromkeys(names[number :: len(made)], State(b"state", 86_401))
            HistoryRows(session).put_states("h.1", mine, 1)
            HistoryRows(session).put_expiries("h.1", ((name, 86_401) for name in mine), 1)
        for session in made:
            found = dict(HistoryRows(session).states("h.1", [*names, (b"none", b"none")]))
            assert dict.fromkeys(names, State(b"state", 86_401)) == found
        check_removal(HistoryRows(made[0]), names)
    kept = [ids(ring, node) for node in ring.nodes]
    assert {*TABLES, *rows.TABLES} == kept[0].keys()
    assert all(kept[0] == each for each in kept)
    for node in ring.nodes:
        assert "mismatch" not in node.log.read_text().lower()


def check_removal(of: HistoryRows, names: Sequence[Name]) -> None:
    """States of other names go, page by page; those that are kept, and other histories', stay."""
    for name in ("h.2", "other.1"):
        of.put_states(name, dict.fromkeys(names[:9], State(b"state", 0)), 1)
    left: Left | None = ALL
    while left is not None:
        left = of.drop_states("h.", but="h.2", left=left)
    found = {each: dict(of.states(each, names)) for each in ("h.1", "h.2", "other.1")}
    assert [0, 9, 9] == [len(found[each]) for each in ("h.1", "h.2", "other.1")]
    assert [] == list(of.expiries("h.1", 1, 90_000))


def ids(ring: Ring, node: Cassandra) -> dict[str, object]:
    """Return the ids of the tables, as one node has them."""
    with ring.connected([node]) as cluster:
        query = "SELECT table_name, id FROM system_schema.tables WHERE keyspace_name = %s"
        return {row.table_name: row.id for row in cluster.connect().execute(query, [KEYSPACE])}
