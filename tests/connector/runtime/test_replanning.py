"""A job that continues with another number of splits: nothing is lost, doubled or miscounted."""

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.connector.control.jobs import read_job
from headrace.connector.runtime.books.committed import books_of
from headrace.connector.runtime.books.equations import SplitBooks, differences, total
from headrace.connector.runtime.replanning import ConfiguredSplits, Replanning
from headrace.connector.stores import Commit, LeaseRow, PlanChangedError
from headrace.connector.stores.sqlite.store import SqliteConfig, SqliteStore
from headrace.connector.stores.transactional import transactional
from headrace.plugins import FencedError, Source
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosSink,
    DrivenClock,
    MemoryConfig,
    MemorySource,
    context,
    sample_records,
)
from headrace.sources.cassandra.logs.pins import notes_in
from headrace.sources.cassandra.ring.splits import names
from helpers.jobs.transactions import MemoryTransactions, TransactionalSink
from helpers.logs.gap_jobs import GapJob
from helpers.logs.node_logs import batches, source
from helpers.settings.filled import filled
from helpers.stores.file_rows import replace_heads

ALONE = ("n1",)
OTHERS = ("n2", "n3")
WAITING = range(40, 80)
LEASE_MS = 60_000


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GapJob:
    """Return a job of eight splits over logs in which forty mutations wait for a second copy."""
    monkeypatch.chdir(tmp_path)
    made = GapJob(tmp_path, splits=8)
    made.log(0, range(40))
    made.log(1, WAITING, nodes=ALONE)
    return made


@pytest.fixture
def store(job: GapJob) -> Iterator[SqliteStore]:
    """Return the job's store."""
    with contextlib.closing(SqliteStore.open(job.folder / "state.db", "orders")) as opened:
        yield opened


def leases(job: GapJob) -> list[LeaseRow]:
    """Return the leases of the splits in force."""
    with contextlib.closing(SqliteStore.open(job.folder / "state.db", "orders")) as opened:
        return list(opened.leases())


def notes(job: GapJob) -> set[str]:
    """Return the splits that have left notes of their needs beside a log."""
    folder = job.folder / "n1" / ".headrace"
    return {note.need.split for note in notes_in(folder)}


def test_a_job_goes_on_with_other_splits(job: GapJob) -> None:
    """What is pending stays pending, what was published is known, each plan's books balance."""
    assert 0 == job.run()
    tokens = [row.token for row in leases(job)]
    for count in (3, 16, 8):
        job.change(splits=count)
        assert 0 == job.run()
        assert sorted(names(count)) == [row.split for row in leases(job)]
        assert set(names(count)) == notes(job)
        assert max(tokens) < min(row.token for row in leases(job))
        tokens = [row.token for row in leases(job)]
        assert [*range(40)] == job.rows()
        assert len(WAITING) == job.books()["mutations.pending"]

    job.log(1, WAITING, nodes=OTHERS)
    assert 0 == job.run()

    assert [*range(40), *WAITING] == job.rows()
    books = job.books()
    assert (80, 0) == (books["mutations.agreed"], books["mutations.pending"])
    assert (120, 120) == (books["mutations.opening"], books["mutations.passed_on"])
    assert {f"entries.{node}.read": 80 for node in ("n1", *OTHERS)} == {
        name: count for name, count in books.items() if name.endswith(".read")
    }


def test_the_sum_says_that_earlier_plans_are_in_it(
    job: GapJob, capsys: pytest.CaptureFixture[str]
) -> None:
    """The spans are those of the plan in force; what was read before them is named beside them."""
    assert 0 == job.run()
    job.change(splits=3)
    assert 0 == job.run()
    capsys.readouterr()

    assert 0 == job.call("verify", "--books")
    lines = capsys.readouterr().out.splitlines()
    ends = [number for number, line in enumerate(lines) if line.endswith(": all splits")]
    assert "and what was read before that: plan 1" == lines[ends[-1] + 1]
    assert 1 == sum("read before" in line for line in lines)


def replanning(
    job: GapJob, made: Source, store: SqliteStore, sink: ChaosSink | None = None
) -> Replanning:
    """Return what brings the splits of a source and of the job together."""
    return Replanning(
        read_job(job.path),
        made,
        sink or ChaosSink(ChaosConfig(), context()),
        store,
        stopped=lambda _: True,
        log=context().log,
    )


def test_whoever_started_last_has_its_way_and_the_others_follow(
    job: GapJob, store: SqliteStore
) -> None:
    """A process that runs on does not take back what another announced, for any file."""
    configured, other = ConfiguredSplits(), ConfiguredSplits()

    def settled(count: int, mine: ConfiguredSplits) -> tuple[int, list[str]]:
        made = source({**job.source, "splits": count}, job="orders")
        number = replanning(job, made, store).settle(mine)
        return number, [split.split_id for split in made.plan()]

    assert (1, names(8)) == settled(8, configured)
    assert (2, names(3)) == settled(3, other)
    assert (2, names(3)) == settled(8, configured)
    assert (2, names(3)) == settled(3, other)
    assert (3, names(5)) == settled(5, configured)  # Its file was changed.
    assert (3, names(5)) == settled(3, other)
    assert (4, names(3)) == settled(3, ConfiguredSplits())
    assert set(names(3)) == notes(job)


def test_a_change_waits_while_another_owns_a_split(job: GapJob, store: SqliteStore) -> None:
    """The worker that has it sees what was announced; a waiting worker can be stopped."""
    first = source({**job.source, "splits": 8}, job="orders")
    before, configured = replanning(job, first, store), ConfiguredSplits()
    number = before.settle(configured)
    store.claim("somebody", store.leases()[3:4], LEASE_MS)
    assert not before.is_due(number)

    later = source({**job.source, "splits": 3}, job="orders")
    assert 0 == replanning(job, later, store).settle(ConfiguredSplits())
    assert before.is_due(number)
    assert {None, "somebody"} == {row.owner for row in store.leases()}
    store.dismiss("somebody")

    assert 2 == replanning(job, first, store).settle(configured)
    assert before.is_due(number)


def test_other_sources_cannot_lose_a_split(job: GapJob, store: SqliteStore) -> None:
    """Their splits are not ranges: one that has state must stay."""
    store.register(["a", "b"])
    made = MemorySource(MemoryConfig(splits={"a": [sample_records(1)]}), context())

    with pytest.raises(PlanChangedError, match="without 'b'"):
        replanning(job, made, store).settle(ConfiguredSplits())
    assert None is store.plans().announced


class ExactlyOnce:
    """A job whose states are in its sink, run by hand; `writers` are all that were opened."""

    def __init__(self, job: GapJob, store: SqliteStore) -> None:
        """Run nothing yet."""
        self.sink = TransactionalSink(ChaosConfig(), context())
        self.writers: list[MemoryTransactions] = []
        self._job = job
        self._store = store

    def _writer_of(self, split: str, token: int) -> MemoryTransactions:
        del token
        self.writers.append(self.sink.open_split(split))
        return self.writers[-1]

    def run(self, count: int) -> tuple[int, SplitBooks]:
        """Read all in so many splits; return how many changes came, and the books."""
        made = source({**self._job.source, "splits": count}, job="orders")
        replanning(self._job, made, self._store, self.sink).settle(ConfiguredSplits())
        config = SqliteConfig(path=str(self._job.folder / "state.db"))
        kept = transactional(SqliteStore).open_job(config, "orders")
        kept.write_with(cache(self._writer_of), DrivenClock())
        tokens = kept.claim("w", kept.leases(), LEASE_MS)
        states = {split: kept.load(split, token) for split, token in tokens.items()}
        readers = [
            made.open(
                split,
                None
                if (at := states[split.split_id].position) is None
                else made.decode_position(at),
            )
            for split in made.plan()
        ]
        changes = 0
        for batch in batches(readers):
            changes += sum(1 for _ in batch.records())
            before = states[batch.split]
            after = replace(before, seq=before.seq + 1, position=batch.end.encode())
            commit = Commit(
                split=batch.split,
                plan=after.plan,
                token=after.token,
                owner="w",
                previous=before.seq,
                seq=after.seq,
                position=batch.end.encode(),
                counters={},
            )
            assert {} == kept.commit([commit])
            states[batch.split] = after
        books = books_of(list(states.values()), made)
        kept.dismiss("w")
        kept.close()
        made.close()
        return changes, total(books)


def test_exactly_once_the_states_are_those_of_the_sink(job: GapJob, store: SqliteStore) -> None:
    """Every writer of the old plan is fenced first; reused names start where the plan says.

    What the sink still has under such a name is of an earlier plan.
    """
    once = ExactlyOnce(job, store)
    changes, books = once.run(2)
    assert (40, len(WAITING)) == (changes, books.books["mutations.pending"])
    former = list(once.writers)
    replace_heads(job.folder / "state.db", lambda _: {"position": None, "chunks": None, "seq": 0})

    for count in (3, 2):
        changes, books = once.run(count)
        assert (0, 40) == (changes, books.books["mutations.opening"])
        assert [] == differences(books)
        for writer in filled(former):
            with pytest.raises(FencedError):
                writer.commit({}, 0)
    job.log(1, WAITING, nodes=OTHERS)
    assert 40 == once.run(5)[0]
    assert [40, 40, 40] == [plan.books["mutations.passed_on"] for plan in store.plans().ended]
