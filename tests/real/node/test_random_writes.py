"""Random tables and statements on real nodes: what is read is what Cassandra reads and selects.

`HEADRACE_SEED` gives another run, `HEADRACE_STATEMENTS` makes it longer.
"""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy

from headrace.sources.cassandra.inspect.command import main
from headrace.sources.cassandra.log import read_mutations
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import Schema, TableSchema
from helpers.jobs.children import until_after
from helpers.logs.sample_log import segments
from real.node.random_statements import KEYSPACE, Workload
from real.node.selected import comparable_row, loaded
from real.servers import oracle
from real.servers.cassandra import RELEASES, Cassandra

pytestmark = pytest.mark.real

SEED: Final = 20_261_121
STATEMENTS: Final = int(os.environ.get("HEADRACE_STATEMENTS", "250"))
SECONDS_MAX: Final = STATEMENTS * 0.1  # A slow machine executes fewer of them.
EXPIRED_S: Final = 2  # After so long the shortest TTL has run out.
Rows = Mapping[str, Sequence[str]]
Partitions = Mapping[str, Sequence[Mapping[str, Any]]]


@contextmanager
def connected(node: Cassandra) -> Iterator[Session]:
    """Connect to *node*."""
    profile = ExecutionProfile(WhiteListRoundRobinPolicy([node.host]), request_timeout=60)
    profiles = {EXEC_PROFILE_DEFAULT: profile}
    with Cluster(
        [node.host], port=node.port, protocol_version=5, execution_profiles=profiles
    ) as cluster:
        yield cluster.connect()


def written(session: Session, workload: Workload) -> tuple[int, int]:
    """Execute the workload; return how many statements were executed, and how many refused."""
    for statement in workload.ddl():
        session.execute(statement, timeout=60)
    deadline = time.monotonic() + SECONDS_MAX
    executed = refused = 0
    for statement in workload.statements(STATEMENTS):
        if time.monotonic() > deadline:
            break
        executed += 1
        try:
            session.execute(statement)
        except InvalidRequest:
            refused += 1
    return executed, refused


def selected(session: Session, workload: Workload) -> tuple[str, Rows, int]:
    """Return the DDL, what SELECT JSON shows of each table, and when."""
    described = session.execute(f"DESCRIBE KEYSPACE {KEYSPACE} WITH INTERNALS")
    ddl = "\n".join(row.create_statement for row in described) + "\n"
    until_after(time.time() + EXPIRED_S)
    rows = {}
    for table in filter(lambda table: table.cdc, workload.tables):
        query = f"SELECT JSON * FROM {KEYSPACE}.{table.name}"  # noqa: S608 (made here)
        rows[table.name] = [row[0] for row in session.execute(query)]
    return ddl, rows, int(time.time())


def folded(schema: Schema, folder: Path, now_s: int) -> Mapping[str, list[dict[str, Any]]]:
    """Fold every change in the logs in *folder*; return the rows of each table."""
    folds = {table_id: Fold(table) for table_id, table in schema.tables.items()}
    for path in segments(folder):
        with path.open("rb") as stream:
            for mutation in read_mutations(stream, schema, place=path.name):
                for change in mutation.changes():
                    folds[change.table.table_id].add(change)
    return {fold.table.name: list(fold.rows(now_s)) for fold in folds.values()}


def by_partition(table: TableSchema, rows: Sequence[Mapping[str, Any]]) -> Partitions:
    """Return comparable rows by partition, in the order that they come in."""
    types = {column.name: column.type for column in table.columns}
    parts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        known = comparable_row(types, row)
        parts[repr([known[column.name] for column in table.partition_key])].append(known)
    return parts


def differences(expected: Partitions, found: Partitions) -> list[tuple[object, ...]]:
    """Return where the two differ: columns of rows at the same place, rows, or partitions."""
    differing: list[tuple[object, ...]] = []
    for key in expected.keys() | found.keys():
        nothing: Mapping[str, Any] = {}
        pairs = zip_longest(expected.get(key, ()), found.get(key, ()), fillvalue=nothing)
        for number, (one, other) in enumerate(pairs):
            names = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
            differing += [(key, number, n, one.get(n), other.get(n)) for n in names]
    return differing[:10]


@pytest.mark.parametrize("name", RELEASES)
def test_random_writes_are_read_as_cassandra_reads_them(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mutations are those of Cassandra's own reader; folded, they are what SELECT shows."""
    seed = int(os.environ.get("HEADRACE_SEED", SEED))
    release = RELEASES[name]
    workload = Workload(seed, vectors=release.java > 11, late=name == "5.0-none")
    with Cassandra(tmp_path / "node", release=release) as node, connected(node) as session:
        executed, refused = written(session, workload)
        ddl, rows, now_s = selected(session, workload)
    with capsys.disabled():
        run = f"HEADRACE_SEED={seed} HEADRACE_STATEMENTS={executed}"
        sys.stdout.write(f"\n{name}: {run}, {refused} refused ")
    assert refused < executed / 5
    (tmp_path / "schema.cql").write_text(ddl)

    assert 0 == main(
        ["--form", "mutations", "--schema", str(tmp_path / "schema.cql"), str(node.cdc_raw)]
    )
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(found) > executed / 2
    expected = oracle.mutations(ddl, segments(node.cdc_raw))
    assert [m.get("position") for m in expected] == [m.get("position") for m in found]
    for theirs, ours in zip(expected, found, strict=True):
        assert theirs == ours

    schema = parse_schema(ddl)
    fold = folded(schema, node.cdc_raw, now_s)
    for table in filter(lambda table: table.cdc, workload.tables):
        known = schema.table(f"{KEYSPACE}.{table.name}")
        assert known is not None
        chosen = by_partition(known, [loaded(row) for row in rows[table.name]])
        assert [] == differences(chosen, by_partition(known, fold[table.name])), table.name
    assert sum(map(len, rows.values())) > 10
