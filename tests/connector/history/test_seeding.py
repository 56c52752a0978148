"""A history that is seeded knows rows that are older than it, and says what it cannot know."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headrace.connector.history.errors import HistorySeedError
from headrace.connector.history.query import Event, Query
from headrace.connector.history.seeding import RowWriter, begin_seed, end_seed, seed_now
from headrace.connector.history.sink import HistorySink
from headrace.plugins import FatalError, Operation
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.mutation.changes import Change
from headrace.sources.cassandra.mutation.folding import Fold
from helpers.histories import places
from helpers.histories import rows as orders
from helpers.histories.kept import FOREVER_MS, Kept, beside, of_table, settled
from helpers.histories.oracle import Oracle, changes
from helpers.histories.snapshots import delivery, selected
from helpers.recordings.batches import recorded_batches
from helpers.settings.seeds import soaked

pytestmark = pytest.mark.usefixtures("each_store")

RECORDINGS = ("4.1-ops", "5.0-types", "6.0-v9-random", *soaked("5.0-random"))
RUN = "seed-1"
PER_COMMIT = 10
WIDE = (Operation.DELETE_RANGE, Operation.DELETE_PARTITION)


def newest_us(changes: Sequence[Change]) -> int:
    """Return the newest write time in *changes*."""
    found = [change.timestamp_us for change in changes]
    for change in changes:
        for column in change.columns:
            found += [cell.timestamp_us for cell in column.cells]
            found += [column.deletion.timestamp_us] if column.deletion else []
        found += [change.range.deletion.timestamp_us] if change.range else []
    return max(found, default=0)


class Seeded:
    """A history that begins in the middle of a table's past, and reads a snapshot later."""

    def __init__(
        self, folder: Path, name: str, table: str, cuts: Sequence[int], *, timed: bool = True
    ) -> None:
        """Begin after *cuts*[0] changes: they are in the table, and not in the logs that it has.

        CQL shows the times of elements if they are *timed*.
        """
        self.changes = changes(name)[table]
        self.kept = Kept(DrivenClock(), **beside(folder, table=table, seed="snapshot"))
        self.table = self.changes[0].table
        self.singles = [
            msgspec.structs.replace(each, encoded=each.encoded.chosen([number]))
            for batch in recorded_batches(name)
            if len((each := of_table(batch, table)).encoded)
            for number in range(len(each.encoded))
        ]
        self.cuts = cuts
        self.timed = timed
        begun_us = newest_us(self.changes[: cuts[0]]) + 1
        self.history = self.kept.history()
        for part in self.history.file.parts:
            with part.writing():
                epoch = part.epochs()[-1]
                part.keep_epoch(epoch._replace(states_since_us=begun_us), keeps_states=True)
        begin_seed(self.history.file, RUN, begun_us)

    def log(self, begin: int, end: int) -> None:
        """Let the history have changes from the logs."""
        writer = self.kept.writer()
        for first in range(begin, end, PER_COMMIT):
            for each in self.singles[first : min(end, first + PER_COMMIT)]:
                writer.submit(each, settled)
            self.kept.clock.advance(7)
            assert writer.commit({}, FOREVER_MS)
        writer.close()

    def rows(self, count: int) -> list[tuple[bytes | None, ...]]:
        """Return what a SELECT shows after so many changes."""
        fold = Fold(self.table)
        for change in self.changes[:count]:
            fold.add(change)
        return list(selected(fold, self.now_s, timed=self.timed))

    @property
    def now_s(self) -> int:
        """Now."""
        return self.kept.clock.wall_ms() // 1_000

    def seed(self, rows: Sequence[tuple[bytes | None, ...]], run: str = RUN) -> None:
        """Let a run write *rows*, as a backfill does."""
        config = self.kept.sink.config
        now = DrivenClock()  # Of the clients, whose times are in the recording.
        now.advance(max(0, newest_us(self.changes) // 1_000 - now.wall_ms()) + 1)
        writer = HistorySink(config, replace(context(now), job=run)).open()
        if rows:
            made = delivery(self.table, rows, self.now_s, timed=self.timed)
            writer.submit(made, settled)
        writer.close()

    def events(self, *scopes: str) -> list[Event]:
        """Return all events, with these images."""
        self.kept.clock.advance(1)
        query = Query(from_ms=0, limit=1_000, scopes=frozenset(scopes))
        return [event for page in self.history.pages(query) for event in page.events]


def parts_of(seeded: Seeded, dice: random.Random) -> tuple[list[Event], list[Event]]:
    """Read the snapshot in two parts, between changes; return the past, and the newest images."""
    begin, first, read, second, end = seeded.cuts
    rows = seeded.rows(read)
    dice.shuffle(rows)
    rows.sort(key=lambda row: row[1] or b"")  # A page has whole partitions.
    half = len(rows) // 2
    seeded.log(begin, first)
    seeded.seed(rows[:half])
    seeded.log(first, second)
    seeded.seed(rows[half:])
    seeded.seed(rows[:half])  # As after a crash.
    end_seed(seeded.history.file, seeded.kept.clock.wall_ms())
    seeded.log(second, end)
    return seeded.events("pre", "post"), seeded.events("latest")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "timed", "each_store"),
    [
        *((name, True, "file") for name in RECORDINGS),
        ("4.1-ops", False, "file"),
        *soaked(("5.0-random", False, "file")),
        ("4.1-ops", True, "tables"),
    ],
    indirect=["each_store"],
)
def test_images_are_what_select_shows(name: str, tmp_path: Path, *, timed: bool) -> None:
    """Of rows that are older than the history, wherever its snapshot falls; or they are partial."""
    dice = random.Random(1)  # noqa: S311 (any cuts)
    counts = {"whole": 0, "partial": 0, "new": 0}
    for number, (table, mine) in enumerate(changes(name).items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        begin, *inner = sorted(dice.sample(range(1, len(mine)), min(4, len(mine) - 1)))
        inner += [len(mine)] * (3 - len(inner))
        seeded = Seeded(folder, name, table, [begin, *inner, len(mine)], timed=timed)
        past, newest = parts_of(seeded, dice)
        compare(seeded, past, newest, counts)
        seeded.history.close()
    assert counts["whole"] > 2 * counts["partial"]
    assert counts["new"] > 20


def compare(
    seeded: Seeded, past: Sequence[Event], newest: Sequence[Event], counts: dict[str, int]
) -> None:
    """Compare whole images with the rows of the oracle, and count them."""
    begin, _, _, done, _ = seeded.cuts
    oracle, last = Oracle(seeded.table), Oracle(seeded.table)
    for change in seeded.changes:
        last.add(change)
    for change in seeded.changes[:begin]:
        oracle.add(change)
    for number, change in enumerate(seeded.changes[begin:], start=begin):
        event, now = past[number - begin], newest[number - begin]
        assert change.timestamp_us == event.written_us
        at_s = event.time_ms // 1_000
        before = None if event.operation in WIDE else oracle.image(change, event, at_s)
        oracle.add(change)
        if event.operation in WIDE:
            continue
        if not now.partial:
            assert last.image(change, now, seeded.now_s) == now.latest, (event.key, change)
            counts["whole"] += 1
        counts["partial"] += now.partial
        if number >= done and not event.partial:
            assert before == event.pre, (event.key, change)
            if event.operation is not Operation.DELETE:
                assert oracle.image(change, event, at_s) == event.post
            counts["new"] += 1


def small(folder: Path) -> Seeded:
    """Return a history whose table had ten changes before it."""
    return Seeded(folder, "4.1-ops", "hazel_patient.onyx_walnut", [10])


def test_what_was_read_of_a_range_stays_the_same(tmp_path: Path) -> None:
    """A seed changes no image of what arrived before it (HQ-2); its rows are not changes."""
    seeded = small(tmp_path)
    seeded.log(10, 60)
    before = seeded.events("change", "pre", "post")
    seeded.seed(seeded.rows(60))
    end_seed(seeded.history.file, seeded.kept.clock.wall_ms())
    assert before == seeded.events("change", "pre", "post")
    assert 50 == len(before)
    seeded.log(60, 100)
    assert before == seeded.events("change", "pre", "post")[:50]
    seeded.history.close()


def test_only_the_run_that_seeds_it_writes_rows(tmp_path: Path) -> None:
    """A run that another one replaced ends with an error, and so does a replay into a history."""
    seeded = small(tmp_path)
    rows = seeded.rows(10)
    sink = HistorySink(seeded.kept.sink.config, replace(context(seeded.kept.clock), job=RUN))
    writer = sink.open()
    assert isinstance(writer, RowWriter)
    begin_seed(seeded.history.file, "seed-2", 0)
    with pytest.raises(HistorySeedError, match="run seed-1 does not seed this history any more"):
        writer.submit(delivery(seeded.table, rows, seeded.now_s), settled)
    writer.close()
    with pytest.raises(FatalError, match="the changes of splits only"):
        seeded.seed(rows, run="replay-1")
    assert 0 == places.chosen.states(seeded.history.file)
    seeded.seed(rows, run="seed-2")
    seed = seed_now(seeded.history.file)
    assert seed is not None
    assert 0 < seed.rows == places.chosen.states(seeded.history.file)
    seeded.history.close()


def test_what_was_not_read_yet_is_unknown(tmp_path: Path) -> None:
    """Of a row without rows of the snapshot, only what was seen: until all ranges are read.

    Then the row did not exist. What one image does not know makes the change partial.
    """
    kept = Kept(DrivenClock(), **beside(tmp_path, table=orders.TABLE, seed="snapshot"))
    history = kept.history()
    begun_us = kept.clock.wall_ms() * 1_000
    begin_seed(history.file, RUN, begun_us)
    writer = kept.writer()

    def logged(number: int, written_us: int, note: str) -> None:
        given = orders.change("UPDATE", written_us=written_us, of=(number, 1), note=note)
        writer.submit(orders.delivery(given), settled)
        kept.clock.advance(7)
        assert writer.commit({}, FOREVER_MS)

    logged(1, begun_us + 1, note="a")
    end_seed(history.file, kept.clock.wall_ms())
    logged(2, begun_us + 1, note="b")
    logged(3, begun_us - 1, note="old")
    logged(3, begun_us + 1, note="new")
    kept.clock.advance(1)
    scopes = frozenset({"pre", "post"})
    found = history.select(Query(from_ms=0, scopes=scopes)).events
    history.close()
    writer.close()
    shown = [(event.pre, event.post, event.partial) for event in found]
    new = {"note": "new", "total": None}
    assert [
        ({}, {"note": "a"}, True),
        ({}, {"note": "b", "total": None}, False),
        ({}, {"note": "old", "total": None}, True),
        ({"note": "old", "total": None}, new, True),
    ] == shown
