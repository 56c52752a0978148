"""Jobs that lose tables, and forked jobs: nothing is lost, repeated or miscounted."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.connector.control.offsets import Offsets
from headrace.connector.runtime.books.equations import SplitBooks, differences
from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.runtime.splits.ownership import Changes
from headrace.connector.stores.job_forks import separate
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import Batch, parse_config
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from helpers.jobs.children import until
from helpers.jobs.forked import ALONE, OTHER, OTHERS, T, begun, check_forked, forked, jobs, running
from helpers.logs.forged import OTHER as OTHER_ID
from helpers.logs.forged import SCHEMA, TABLE, mutation, update
from helpers.logs.gap_jobs import GapJob
from helpers.logs.node_logs import batches, forged_nodes, open_all, source

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
    """It is booked, not left to expire; what waits for the other tables continues waiting."""
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


def test_what_waits_without_bytes_goes_on_waiting(job: GapJob) -> None:
    """Whether it has changes of the tables that are left cannot be known any more."""
    assert 0 == job.run()
    for path in job.folder.glob(f"{ALONE[0]}/*-{SEGMENT_ID + 1}*"):
        path.unlink()

    job.change(tables=[T])
    assert 0 == job.run()
    books = job.books()
    assert (0, 6) == (books["mutations.filtered"], books["mutations.pending"])


def test_a_keyspace_that_leaves_and_comes_back(job: GapJob) -> None:
    """Its waiting mutations are judged by its own replicas, also if others left meanwhile."""
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
    """Where no one knows its replicas any more, what waits is filtered, and what was is gone."""
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


def test_a_forked_job_opens_its_books_anew(shared: GapJob) -> None:
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


def test_a_forked_job_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wanted to run again, it continues from where the two were one, and each has its own table."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path)
    forked(job)

    check_forked(job)


def test_a_run_says_what_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command for one job reports forked jobs that are to run, and how to run them."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path)
    forked(job)
    capsys.readouterr()
    assert 0 == job.run()

    said = f"cdc.{OTHER} has a job of its own: headrace run {job.path} --job '{FORK}'\n"
    assert capsys.readouterr().err.endswith(said)
    assert 0 == job.run("--job", FORK)
    assert "has a job of its own" not in capsys.readouterr().err
    job.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == job.run()
    assert "has a job of its own" not in capsys.readouterr().err


def test_a_table_that_begins_at_the_beginning_has_a_job_of_its_own(shared: GapJob) -> None:
    """The markers of the job of its sink do not move for it, and it keeps its own."""
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
    assert 0 == shared.run("--job", FORK)
    late = [*range(3, 6), *range(13, 16)]
    assert sorted([*before, *range(10, 13), *range(16, 19), *late]) == shared.rows()
    assert {"orders", FORK} == jobs(shared)
    assert 0 == shared.books()["mutations.pending"]
    assert 3 == shared.books()["mutations.filtered"]


def test_a_table_that_begins_again_has_no_older_position(shared: GapJob) -> None:
    """A dropped source may have had a job of this name: another one starts as configured."""
    again = (
        f"DROP DATA_SOURCE cdc ON TABLE {OTHER};"
        f"CREATE DATA_SOURCE cdc ON TABLE {OTHER} WITH k AND job = 'orders' AND start = 'earliest'"
    )
    once = [*range(3), *range(10, 13)]
    for times in (1, 2):
        shared.execute(again)
        assert 0 == shared.run("--job", FORK)
        assert sorted([*once, *(list(range(10, 13)) * times)]) == shared.rows()
        assert 3 == shared.books("--job", FORK)["mutations.pending"]


def test_a_forked_source_that_is_made_again_begins_where_the_job_is(
    shared: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is the way back where both stand at one place; then the fork can be forgotten."""
    shared.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == shared.run()
    shared.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")
    shared.log(2, range(6, 9), others=range(16, 19))
    assert 0 == shared.run()
    assert 0 == shared.run("--job", FORK)
    shared.execute(f"DROP DATA_SOURCE cdc ON TABLE {OTHER}")
    shared.execute(f"CREATE DATA_SOURCE cdc ON TABLE {OTHER} WITH k AND job = 'orders'")
    shared.log(4, range(3, 6), nodes=OTHERS, others=range(30, 33))
    assert 0 == shared.run()

    everything = [*range(9), *range(10, 13), *range(16, 19), *range(30, 33)]
    assert everything == shared.rows()
    assert {"orders"} == jobs(shared)
    assert 2 == shared.run("--job", FORK)
    assert f"no data source is defined for job {FORK}" in capsys.readouterr().err
    assert [] != list((shared.folder / "n1" / ".headrace").glob("*~*"))
    assert 0 == shared.call("forget", "--job", FORK)
    assert [] == list((shared.folder / "n1" / ".headrace").glob("*~*"))


@pytest.mark.parametrize("verb", ["STOP", "PAUSE"])
def test_what_a_forked_job_needs_stays_though_it_has_not_run(shared: GapJob, verb: str) -> None:
    """The other job disposes of what both have read, and of nothing that is still to be read."""
    shared.change(disposal="delete")
    shared.log(1, range(0), nodes=OTHERS)
    shared.log(2, range(6, 9), others=range(16, 19))
    shared.execute(f"{verb} DATA_SOURCE cdc ON TABLE {OTHER}")
    for number in (3, 4):
        assert 0 == shared.run()
        shared.log(number, range(20, 23) if number == 3 else range(0))
    assert 0 == shared.run()
    shared.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == shared.run("--job", FORK)

    everything = [*range(3), *range(6, 9), *range(10, 13), *range(16, 19), *range(20, 23)]
    assert everything == shared.rows()
    assert 0 == shared.run()
    left = {path.name for path in (shared.folder / "n1").glob("*.log")}
    waiting, newest = (f"CommitLog-7-{SEGMENT_ID + number}.log" for number in (1, 4))
    assert {waiting, newest} == left


def test_jobs_that_run_while_a_source_pauses(shared: GapJob) -> None:
    """While data comes it gets a job of its own, and keeps it: all of it comes once."""
    with running(shared, "orders"):
        shared.log(2, range(20, 23), others=range(30, 33))
        shared.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {OTHER}")
        until(lambda: jobs(shared) == {"orders", FORK}, "it got no job of its own")
        shared.log(3, range(23, 26), others=range(33, 36))
        shared.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")
        everything = [*range(3), *range(10, 13), *range(20, 26), *range(30, 36)]
        with running(shared, FORK):
            until(lambda: everything == shared.rows(), "something is missing")

    assert everything == shared.rows()
    assert {"orders", FORK} == jobs(shared)


def test_a_fork_that_another_worker_makes_just_before_a_claim(
    shared: GapJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker does not use the previous target state: each change comes once."""
    step = LeaseHolder.step
    shared.log(2, range(6, 9), others=range(16, 19))

    def late(self: LeaseHolder) -> Changes:
        if jobs(shared) == {"orders"}:
            shared.execute(f"PAUSE DATA_SOURCE cdc ON TABLE {OTHER}")
            with closing(open_notes(shared.folder / "state.db")) as notes:
                assert separate(notes, "orders", busy=Offsets(notes).live("orders"))
        return step(self)

    monkeypatch.setattr(LeaseHolder, "step", late)
    assert 0 == shared.run()
    shared.execute(f"RESUME DATA_SOURCE cdc ON TABLE {OTHER}")
    assert 0 == shared.run("--job", FORK)

    assert [*range(3), *range(6, 9), *range(10, 13), *range(16, 19)] == shared.rows()


PLACES = st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=3, unique=True)
# For each mutation: the nodes that log it before the fork, and whether it is of both tables.
HISTORY = st.lists(st.tuples(PLACES, st.sampled_from(["t", "other", "both"])), max_size=12)


@settings(max_examples=20)
@given(history=HISTORY)
def test_what_was_said_and_what_waits_is_known_on_both_sides(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[list[str], str]]
) -> None:
    """Of two jobs from one state each tells what waited of its table, and nothing again."""
    folder = tmp_path_factory.mktemp("logs")
    raws = [_mutation(number, kind) for number, (_, kind) in enumerate(history)]
    logs = {
        node: [raw for raw, (nodes, _) in zip(raws, history, strict=True) if node in nodes]
        for node in ("n1", "n2", "n3")
    }
    options = forged_nodes(folder, logs, SCHEMA.replace("cdc = false", "cdc = true"))
    options |= {"splits": 1, "tables": [T, OTHER]}
    before = list(batches(open_all(source(options, job="orders")).values()))
    number = SEGMENT_ID + 1
    made = segment([raws], segment_id=number)
    for node in logs:
        write_segment(folder / node, made.content, segment_id=number)

    reported = [_reported(before)]
    for job, table in (("orders", T), ("orders~x", OTHER)):
        resume = {"1-of-1": before[-1].end} if before else {}
        config = parse_config(CassandraConfig, options | {"tables": [table]})
        mine = CassandraSource(config, replace(context(job="orders"), job=job))  # And its key.
        after = list(batches(open_all(mine, resume).values()))
        reported.append(_reported(after))
        assert {table} >= {name for name, _ in reported[-1]}
        for batch in after[-1:]:
            assert [] == differences(SplitBooks("", batch.end.books(), {}, BOOKKEEPING))
            assert 0 == batch.end.books()["mutations.pending"]
    kinds = {"t": [T], "other": [OTHER], "both": [T, OTHER]}
    owed = Counter((t, f"k{n}") for n, (_, kind) in enumerate(history) for t in kinds[kind])
    assert owed == sum(reported, Counter())


def _mutation(number: int, kind: str) -> bytes:
    tables = {"t": [TABLE], "other": [OTHER_ID], "both": [TABLE, OTHER_ID]}[kind]
    return mutation(*[update(b"k%d" % number, b"v", table=table) for table in tables])


def _reported(found: Sequence[Batch]) -> Counter[tuple[str, str]]:
    """Return how often each row of each table was published."""
    documents = [record.document() for batch in found for record in batch.records()]
    return Counter((d["table"], bytes.fromhex(d["key"]["k"][2:]).decode()) for d in documents)
