"""Jobs that lose tables, part, and become one again: nothing is lost, repeated or miscounted."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from children import until
from forged import OTHER as OTHER_ID
from forged import SCHEMA, TABLE, mutation, update
from gap_jobs import GapJob
from headrace.connector.runtime.books import SplitBooks, differences
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.state import CdcState
from node_logs import batches, forged_nodes, open_all, source
from parted import ALONE, OTHER, OTHERS, T, begun, check_one, jobs, parted, running

FORK = "orders~cdc.forged.other"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job on two tables, of each of which three mutations wait for a second copy."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path, tables=[T, OTHER])
    made.log(0, range(3), others=range(10, 13))
    made.log(1, range(3, 6), nodes=ALONE, others=range(13, 16))
    return made


def test_what_waits_for_a_dropped_table_is_filtered(job: GapJob) -> None:
    """It is booked, not left to expire; what waits for the other tables goes on waiting."""
    assert 0 == job.run()
    assert 6 == job.books()["mutations.pending"]

    job.change(tables=[T])
    job.log(1, range(3, 6), nodes=OTHERS, others=range(13, 16))
    assert 0 == job.run()

    books = job.books()
    assert (3, 0, 9) == tuple(
        books[f"mutations.{fate}"] for fate in ("filtered", "pending", "agreed")
    )
    assert [*range(6), *range(10, 13)] == job.rows()


def test_a_keyspace_that_leaves_and_comes_back(job: GapJob) -> None:
    """Its waiting mutations are judged by its own replicas, whatever left meanwhile."""
    schema = job.folder / "schema.cql"
    more = schema.read_text().replace("forged", "another").replace("3b1e", "4b1e")
    schema.write_text(schema.read_text() + more)
    assert 0 == job.run()

    for tables in (["another.t"], ["another.t", T, OTHER]):
        job.change(tables=tables)
        assert 0 == job.run()

    job.log(1, range(3, 6), nodes=OTHERS, others=range(13, 16))
    assert 0 == job.run()
    assert 6 == job.books()["mutations.filtered"]
    assert [*range(3), *range(10, 13)] == job.rows()


def test_a_keyspace_that_is_gone_is_forgotten(job: GapJob) -> None:
    """Where nobody knows its replicas any more, what waits is filtered, and what was is gone."""
    assert 0 == job.run()
    schema = job.folder / "schema.cql"
    schema.write_text(schema.read_text().replace("forged", "another").replace("3b1e", "4b1e"))
    job.change(tables=["another.t"])

    assert 0 == job.run()
    books = job.books()
    assert (6, 0) == (books["mutations.filtered"], books["mutations.pending"])


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return such a job with sink and tables of statements, when it has run."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path)
    begun(made)
    return made


def test_jobs_that_part_open_their_books_anew(shared: GapJob) -> None:
    """What waits for one table's sake is filtered in the other's job; all books balance."""
    shared.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == shared.run()
    shared.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}; STOP DATA_SOURCE cdc ON TABLE {T}")
    assert 0 == shared.run("--job", FORK)

    left, right = shared.books(), shared.books("--job", FORK)
    assert (3, 3) == (left["mutations.filtered"], left["mutations.pending"])
    assert (6, 3, 3) == tuple(
        right[f"mutations.{name}"] for name in ("opening", "filtered", "pending")
    )
    assert "entries.n1.read" not in right or 0 == right["entries.n1.read"]


def test_jobs_that_want_the_same_again_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fork was ahead or behind: both come to one place, and one state goes on for both."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path)
    parted(job)
    capsys.readouterr()
    assert 0 == job.run()

    assert '"event":"joined"' in capsys.readouterr().err
    check_one(job)


def test_a_table_that_begins_at_the_beginning_joins_when_it_has_come_so_far(
    shared: GapJob,
) -> None:
    """Its job's markers do not move for it; what it has missed comes from a job beside."""
    shared.execute(f"DROP DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == shared.run()
    shared.log(2, range(6, 9), others=range(16, 19))
    assert 0 == shared.run()
    again = f"CREATE DATA_SOURCE cdc ON TABLE {OTHER} WITH k AND job = 'orders' AND start = '%s'"
    shared.execute(again % "earliest")
    assert 0 == shared.run()
    before = shared.rows()

    assert 0 == shared.run("--job", FORK)
    assert sorted([*before, *range(10, 13), *range(16, 19)]) == shared.rows()
    shared.log(4, range(3, 6), nodes=OTHERS, others=range(13, 16))
    assert 0 == shared.run()
    assert sorted([*before, *range(10, 13), *range(16, 19), *range(3, 6), *range(13, 16)]) == (
        shared.rows()
    )
    assert 0 == shared.books()["mutations.pending"]
    assert 3 == shared.books()["mutations.filtered"]


def test_jobs_that_run_become_one(shared: GapJob) -> None:
    """While data comes, both stop for a moment, and one goes on for both: all of it comes once."""
    shared.execute(f"STOP DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == shared.run()
    shared.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")

    with running(shared, "orders", FORK):
        shared.log(2, range(20, 23), others=range(30, 33))
        until(lambda: jobs(shared) == {"orders"}, "they never became one")
        shared.log(3, range(23, 26), others=range(33, 36))
        everything = [*range(3), *range(10, 13), *range(20, 26), *range(30, 36)]
        until(lambda: everything == shared.rows(), "something is missing")

    assert everything == shared.rows()
    assert 6 == shared.books()["mutations.pending"]


PLACES = st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=3, unique=True)
# For each mutation: the nodes that log it before the two become one, and whether it is of both.
HISTORY = st.lists(st.tuples(PLACES, st.sampled_from(["t", "other", "both"])), max_size=12)


@settings(max_examples=20)
@given(history=HISTORY, tau=st.integers(0, 10_000))
def test_joined_books_balance_and_nothing_is_forgotten(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[list[str], str]], tau: int
) -> None:
    """Two jobs over the same logs make one state: what agreed is known, what waits still waits."""
    folder = tmp_path_factory.mktemp("logs")
    raws = [_mutation(number, kind) for number, (_, kind) in enumerate(history)]
    logs = {
        node: [raw for raw, (nodes, _) in zip(raws, history, strict=True) if node in nodes]
        for node in ("n1", "n2", "n3")
    }
    options = forged_nodes(folder, logs, SCHEMA.replace("cdc = false", "cdc = true"))
    base, other = (_read({**options, "splits": 1, "tables": [table]}) for table in (T, OTHER))
    both = base.joined(replace(other, job="orders~x", tau=other.tau + tau))
    assert both is not None
    assert both == CdcState.decode(both.encode())

    assert () == both.contradictions()
    assert [] == differences(SplitBooks("", both.books(), {}))
    pending = [nodes for nodes, _ in history if len(nodes) == 1]
    assert len(pending) == both.books()["mutations.pending"]

    number = SEGMENT_ID + 1
    made = segment([raws], segment_id=number)
    for node in logs:
        write_segment(folder / node, made.content, segment_id=number)
    made_source = source({**options, "splits": 1, "tables": [T, OTHER]}, job="orders")
    found = list(batches(open_all(made_source, {"1-of-1": both}).values()))
    late = sum(1 + (kind == "both") for nodes, kind in history if len(nodes) == 1)
    assert late == sum(1 for batch in found for _ in batch.records())
    for batch in found[-1:]:
        assert [] == differences(SplitBooks("", batch.end.books(), {}))
        assert 0 == batch.end.books()["mutations.pending"]


def _mutation(number: int, kind: str) -> bytes:
    tables = {"t": [TABLE], "other": [OTHER_ID], "both": [TABLE, OTHER_ID]}[kind]
    return mutation(*[update(b"k%d" % number, b"v", table=table) for table in tables])


def _read(options: Mapping[str, object]) -> CdcState:
    """Return the state at the end of the logs; jobs that parted share their key."""
    found = list(batches(open_all(source(options, job="orders")).values()))
    assert isinstance(found[-1].end, CdcState)
    return found[-1].end
