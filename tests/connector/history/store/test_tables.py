"""A history in tables: what a writer left that died, came late or was not answered counts not."""

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.history.arrival import first_of, ms_of
from headrace.connector.history.errors import (
    HistoryBusyError,
    HistoryFileError,
    HistoryMissingError,
    HistoryTruncatedError,
)
from headrace.connector.history.query import Event, Query
from headrace.connector.history.reading import History
from headrace.connector.history.store import deciding, tables
from headrace.connector.history.store import rows as store_rows
from headrace.connector.history.store.head import Snapshot
from headrace.connector.history.store.places import opened, table_parts, whole_place
from headrace.connector.history.store.rows import BATCH_BYTES, BATCH_ROWS
from headrace.connector.history.writing.writer import HistoryWriter
from headrace.plugins import AbortedError, ConfigError, FencedError
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories import places
from helpers.histories.failing import call_before_decision
from helpers.histories.kept import FOREVER_MS, Kept, beside, settled
from helpers.histories.places import FILE, TablePlaces
from helpers.histories.rows import TABLE, change, delivery
from helpers.jobs.children import until

NOW_US = 1_700_000_000_000_000


@pytest.fixture
def node(
    node_places: TablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TablePlaces]:
    """Return the tables of a node, without rows."""
    monkeypatch.chdir(tmp_path)
    node_places.begin(tmp_path)
    monkeypatch.setattr(places, "chosen", node_places)
    yield node_places
    node_places.tables.clear()


def made(folder: Path, **options: str) -> Kept:
    """Return an empty history of the table."""
    return Kept(DrivenClock(), **beside(folder, table=TABLE, seed="empty") | options)


def events(kept: Kept) -> list[Event]:
    """Return what a query sees a moment later."""
    kept.clock.advance(1)
    history = kept.history()
    try:
        return history.select(Query(from_ms=0, limit=1_000)).events
    finally:
        history.close()


def commit(writer: HistoryWriter, number: int, head: bytes = b"") -> bool:
    """Commit a change of one row, and the position behind it."""
    writer.submit(delivery(change(written_us=NOW_US + number, total=number)), settled)
    return writer.commit({"head": head or b"%d" % number}, FOREVER_MS)


def totals(found: Sequence[Event]) -> list[object]:
    """Return what changes wrote."""
    return [(event.change or {}).get("total") for event in found]


@pytest.mark.parametrize("is_away", [False, True])
def test_a_writer_may_die_at_any_request(
    node: TablePlaces, tmp_path: Path, *, is_away: bool
) -> None:
    """Its successor finds all of a commit, or nothing; images continue from there (HQ-11)."""
    kept = made(tmp_path)
    last = 0
    reached = set()
    for request in range(1, 100):
        writer = kept.writer()
        node.tables.refused_at, node.tables.is_away = request, is_away
        try:
            commit(writer, last + 1)
        except (AbortedError, FencedError) as error:
            reached.add(type(error))
        is_over = node.tables.refused_at > 1
        node.tables.refused_at, node.tables.is_away = 0, False  # It never comes to `close`.
        seen = events(kept)  # Also when the states were not written yet.
        assert all({"note": None, "total": len(seen)} == event.latest for event in seen)
        kept.sink.open().close()
        successor = kept.sink.open_split("1-of-1")
        head = successor.begin(FOREVER_MS)
        successor.close()
        assert head is not None
        done = int(head.get("head", b"0"))
        assert done in (last, last + 1)
        found = events(kept)
        assert list(range(1, done + 1)) == totals(found) == totals(seen)
        assert all({"note": None, "total": done} == event.latest for event in found)
        for before, after in itertools.pairwise(found):
            assert before.post == after.pre
        last = done
        if is_over:
            break
    assert 5 < request < 99
    assert 1 < last
    assert AbortedError in reached or not is_away


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("is_applied", [False, True])
def test_a_decision_that_is_not_answered_is_found_out(
    node: TablePlaces, tmp_path: Path, *, is_applied: bool, is_refused: bool
) -> None:
    """It was decided, or the commit is aborted; also if the first look at it fails."""
    kept = made(tmp_path)
    writer = kept.writer()

    def spoil() -> None:
        node.tables.unanswered = [is_applied]
        node.tables.refused_at = 2 if is_refused else 0

    call_before_decision(writer, spoil)
    try:
        assert commit(writer, 1)
    except AbortedError:
        assert not is_applied
    writer.close()
    successor = kept.sink.open_split("1-of-1")
    assert ({"head": b"1"} if is_applied else {}) == successor.begin(FOREVER_MS)
    successor.close()
    assert ([1] if is_applied else []) == totals(events(kept))


@pytest.mark.parametrize("is_applied", [False, True])
def test_a_beginning_that_is_not_answered_is_found_out(
    node: TablePlaces, tmp_path: Path, *, is_applied: bool
) -> None:
    """The commit continues, under the number that it has there."""
    kept = made(tmp_path)
    writer = kept.writer()
    node.tables.unanswered = [is_applied]
    assert commit(writer, 1)
    writer.close()
    assert [1] == totals(events(kept))


def test_a_commit_that_comes_late_counts_not(node: TablePlaces, tmp_path: Path) -> None:
    """Another one took its place: what the first wrote before and after that is in no answer."""
    del node
    kept = made(tmp_path)
    first, second = kept.writer("a"), kept.writer("b")

    def overtake() -> None:
        kept.clock.advance(deciding.PATIENCE_MS_MAX + 1)
        assert commit(second, 2)

    call_before_decision(first, overtake)
    with pytest.raises(AbortedError, match="another commit took its place"):
        commit(first, 1)
    assert [2] == totals(events(kept))
    second.close()
    first.close()
    third = kept.writer("a")
    assert commit(third, 3)
    third.close()
    assert [2, 3] == totals(events(kept))


def test_a_commit_that_begins_late_counts_not(
    node: TablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one took its place before it knew what is there."""
    del node
    kept = made(tmp_path)
    first, second = kept.writer("a"), kept.writer("b")
    decides = first._file._deciding  # type: ignore[attr-defined]  # noqa: SLF001 (what decides)
    load = decides.load

    def overtaken() -> Snapshot:
        monkeypatch.setattr(decides, "load", load)
        kept.clock.advance(deciding.PATIENCE_MS_MAX + 1)
        assert commit(second, 2)
        found: Snapshot = load()
        return found

    monkeypatch.setattr(decides, "load", overtaken)
    with pytest.raises(AbortedError, match="another commit took its place"):
        commit(first, 1)
    first.close()
    second.close()
    assert [2] == totals(events(kept))


def test_states_that_are_written_late_replace_nothing_newer(
    node: TablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer stops behind its decision; others write its states, and theirs, before it does."""
    del node
    kept = made(tmp_path)
    first, second = kept.writer("a"), kept.writer("b")
    store = first._file  # noqa: SLF001 (its store)
    late: list[Any] = []
    apply = store._apply  # type: ignore[attr-defined]  # noqa: SLF001 (what it does last)
    monkeypatch.setattr(store, "_apply", lambda *given: late.append(given))
    assert commit(first, 1)
    assert {"note": None, "total": 1} == events(kept)[-1].latest
    assert commit(second, 2)
    apply(*late[0])
    assert {"note": None, "total": 2} == events(kept)[-1].latest
    first.close()
    second.close()


def test_others_wait_for_a_commit_that_is_under_way(
    node: TablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a bounded time; a reader answers up to the last commit meanwhile."""
    del node
    monkeypatch.setattr(tables, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(tables, "SETTLE_SECONDS", 0.05)
    kept = made(tmp_path)
    first, second = kept.writer("a"), kept.writer("b")
    assert commit(second, 1)
    last_ms = kept.clock.wall_ms()

    def look() -> None:
        kept.clock.advance(1_000)
        with pytest.raises(AbortedError, match="another process writes"):
            commit(second, 2)
        history = kept.history()
        page = history.select(Query(from_ms=0))
        found = history.changes(0, frozenset(), 9)  # As the source reads it.
        assert [NOW_US + 1] == [each.written_us for each in found]
        with pytest.raises(HistoryBusyError, match="a commit is under way"):
            history.file.settle(kept.clock.wall_ms())
        history.close()
        assert ([1], last_ms) == (totals(page.events), page.safe_until_ms)

    call_before_decision(first, look)
    assert commit(first, 3)
    first.close()
    second.close()
    assert [1, 3] == totals(events(kept))


def dies_in_a_commit(node: TablePlaces, writer: HistoryWriter) -> None:
    """Have *writer* stop when all is written and nothing decided, as a kill would."""

    def leave() -> None:
        node.tables.refused_at, node.tables.is_away = 1, True

    call_before_decision(writer, leave)
    with pytest.raises(FencedError):
        commit(writer, 1)
    node.tables.refused_at, node.tables.is_away = 0, False


def test_a_restart_with_other_options_does_not_wait_for_a_commit_that_died(
    node: TablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept changes at once: a commit that is under way would keep something else."""
    monkeypatch.setattr(tables, "BUSY_SECONDS", 0.0)
    dies_in_a_commit(node, made(tmp_path).writer())
    again = made(tmp_path, include="change,latest")
    writer = again.writer()
    assert commit(writer, 2)
    writer.close()
    assert [2] == totals(events(again))


def test_others_wait_for_a_commit_that_died_for_seconds(
    node: TablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their own clocks, from when they find it on: writers of other splits, and readers."""
    monkeypatch.setattr(tables, "BUSY_SECONDS", 0.0)
    monkeypatch.setattr(tables, "SETTLE_SECONDS", 0.0)
    kept = made(tmp_path)
    second = kept.writer("b")
    history = kept.history()
    dies_in_a_commit(node, kept.writer("a"))
    kept.clock.advance(deciding.PATIENCE_MS * 2)
    with pytest.raises(AbortedError, match="another process writes"):
        commit(second, 2)
    kept.clock.advance(deciding.PATIENCE_MS + 1)
    assert commit(second, 2)
    dies_in_a_commit(node, second)
    kept.clock.advance(deciding.PATIENCE_MS + 1)
    assert not settles(history, kept.clock.wall_ms())
    kept.clock.advance(deciding.PATIENCE_MS + 1)
    assert settles(history, kept.clock.wall_ms())
    history.close()
    assert [2] == totals(events(kept))


def settles(history: History, until_ms: int) -> bool:
    """Say whether nothing arrives before then any more."""
    try:
        history.file.settle(until_ms)
    except HistoryBusyError:
        return False
    return True


def test_a_commit_that_was_given_up_too_soon_gets_more_time(
    node: TablePlaces, tmp_path: Path
) -> None:
    """Until it is decided: then others wait for twice as long as it took."""
    del node
    kept = made(tmp_path)
    first, second = kept.writer("a"), kept.writer("b")
    decides = first._file._deciding  # type: ignore[attr-defined]  # noqa: SLF001 (what decides)
    asked: list[int] = []

    def look() -> None:
        asked.append(decides._head()[1].pending.patience_ms)  # noqa: SLF001 (what others see)
        if len(asked) < 3:
            kept.clock.advance(deciding.PATIENCE_MS_MAX + 1)
            assert commit(second, 2)
        elif len(asked) < 5:
            kept.clock.advance(2_000)

    call_before_decision(first, look)
    for is_overtaken in (True, True, False, False, False):
        with pytest.raises(AbortedError) if is_overtaken else nullcontext():
            assert commit(first, 1)
    assert [3_000, 6_000, 12_000, 4_000, 4_000] == asked
    first.close()
    second.close()


def test_a_window_goes_when_all_of_it_is_old(node: TablePlaces, tmp_path: Path) -> None:
    """Also when nothing is committed; the error names the first time that is kept (HQ-9)."""
    kept = made(tmp_path, retention="1h")
    window_ms = 3_600_000 // 128
    writer = kept.writer()
    assert commit(writer, 1)
    began_ms = kept.clock.wall_ms()
    kept.clock.advance(window_ms)
    assert commit(writer, 2)
    first, second = events(kept)
    kept.clock.advance(3_600_000)
    store = opened(kept.sink.config.place, kept.clock)
    floor_ms = ms_of(store.floor())
    assert began_ms < floor_ms <= began_ms + window_ms
    assert first.arrival == store.removed()
    assert (second.arrival, second.arrival, 1) == store.extent()
    store.close()
    history = kept.history()
    with pytest.raises(HistoryTruncatedError):
        history.select(Query(from_ms=floor_ms - 1))
    assert [2] == totals(history.select(Query(from_ms=floor_ms)).events)
    assert commit(writer, 3)
    assert first_of(floor_ms) == history.file.floor()
    assert first.arrival == history.file.removed()
    history.close()
    writer.close()
    ttl = 3_600_000 + 2 * window_ms + 3_600_000  # What is left of the window, and of clocks.
    assert all(3_600 <= seconds <= ttl // 1_000 for seconds in node.tables.ttls)


def test_what_was_given_up_is_forgotten_when_its_changes_went(
    node: TablePlaces, tmp_path: Path
) -> None:
    """So the list of such attempts stays short."""
    del node
    kept = made(tmp_path, retention="1h")
    writer = kept.writer()

    def fail() -> None:
        raise HistoryBusyError("failed")

    call_before_decision(writer, fail)
    with pytest.raises(AbortedError):
        commit(writer, 1)
    writer.close()
    writer = kept.writer()
    given_up = []
    for hours in (0, 2, 2, 2):
        kept.clock.advance(hours * 3_600_000)
        assert commit(writer, 2)
        given_up.append(len(writer._file._now().head.abandoned))  # type: ignore[attr-defined]  # noqa: SLF001 (no other sign)
    writer.close()
    assert (1, 0) == (given_up[0], given_up[-1])


def test_nothing_is_left_of_a_history_that_is_purged(node: TablePlaces, tmp_path: Path) -> None:
    """Neither rows nor a name; one that is made again begins empty."""
    kept = made(tmp_path, ttl_events="true")
    writer = kept.writer()
    soon_s = kept.clock.wall_ms() // 1_000 + 60
    writer.submit(delivery(change(written_us=NOW_US, expires=soon_s, note="a")), settled)
    assert writer.commit({"head": b"1", "chunk": b"2"}, FOREVER_MS)
    writer.close()
    opened(kept.sink.config.place, kept.clock).purge()
    left = ("decided", "plain", "history_changes", "history_states", "history_expiries")
    assert dict.fromkeys(left, 0) == {name: node.tables.count(name) for name in left}
    with pytest.raises(HistoryMissingError, match="no history of this name"):
        opened(kept.sink.config.place, kept.clock)
    assert [] == events(made(tmp_path))


def of_rows(kept: Kept, count: int) -> None:
    """Commit a change of each of so many rows, which expire a day later."""
    writer = kept.writer()
    later_s = kept.clock.wall_ms() // 1_000 + 86_400
    rows = (
        change(written_us=NOW_US, of=(n + 2, 0), expires=later_s, note="a") for n in range(count)
    )
    writer.submit(delivery(*rows), settled)
    assert writer.commit({"head": b"1"}, FOREVER_MS)
    writer.close()


@pytest.mark.parametrize("is_kept", [False, True])
def test_states_that_are_no_longer_kept_are_removed_in_steps(
    node: TablePlaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_kept: bool
) -> None:
    """Some with each commit, up to the last; a kill loses one step, and no newer state goes."""
    monkeypatch.setattr(store_rows, "SWEEP_ROWS", 4)
    (tmp_path / "other").mkdir()
    of_rows(made(tmp_path / "other", ttl_events="true"), 3)
    of_rows(made(tmp_path, ttl_events="true"), 20)
    states = partial(node.tables.count, "history_states")
    expiries = partial(node.tables.count, "history_expiries")
    assert (23, 23) == (states(), expiries())
    kept = made(tmp_path, include="change")
    left = [states()]
    if is_kept:  # States are new, while the old ones are there.
        kept = made(tmp_path, ttl_events="true")
        of_rows(kept, 2)
        left.append(states() - 2)
    newer = 2 if is_kept else 0
    for number in range(20):
        writer = kept.writer()
        if number == 3:
            dies_in_a_commit(node, writer)
            writer = kept.writer()
        assert commit(writer, number)
        writer.close()
        newer = min(newer + is_kept, 3)  # The row (1, 1) is new, and then there.
        left.append(states() - newer)
    assert sorted(left, reverse=True) == left
    assert all(before - after <= 16 for before, after in itertools.pairwise(left))
    assert 3 == left[-1]
    assert 3 + 2 * is_kept == expiries()


def test_what_cannot_be_removed_now_does_not_hold_up_a_commit(
    node: TablePlaces, tmp_path: Path
) -> None:
    """It is removed with a later one."""
    of_rows(made(tmp_path), 3)
    node.tables.refuses = "DISTINCT"
    kept = made(tmp_path, include="change")
    writer = kept.writer()
    assert commit(writer, 1)
    node.tables.refuses = ""
    left = node.tables.count("history_states")
    assert commit(writer, 2)
    assert (3, 0) == (left, node.tables.count("history_states"))
    writer.close()


def test_what_expires_no_more_is_not_noted_any_more(node: TablePlaces, tmp_path: Path) -> None:
    """A row that is written again and again has one note."""
    kept = made(tmp_path, ttl_events="true")
    writer = kept.writer()
    now_s = kept.clock.wall_ms() // 1_000
    for number in range(5):
        again = change(written_us=NOW_US + number, expires=now_s + 60 + number, note="a")
        writer.submit(delivery(again), settled)
        assert writer.commit({}, FOREVER_MS)
    writer.close()
    until(lambda: 1 == node.tables.count("history_expiries"), "it has more notes")


def test_entries_that_are_replaced_are_removed(node: TablePlaces, tmp_path: Path) -> None:
    """Positions do not fill the keyspace: one row is left of each entry."""
    kept = made(tmp_path, include="change")
    writer = kept.writer()
    for number in range(5):
        assert commit(writer, number)
    writer.close()
    schema_and_head = 2
    until(lambda: schema_and_head == node.tables.count("plain"), "more rows are left")


def test_batches_are_bounded(node: TablePlaces, tmp_path: Path) -> None:
    """Changes of one bucket are written together, up to a number and a size."""
    kept = made(tmp_path)
    writer = kept.writer()
    small = [change(written_us=NOW_US + n, total=n) for n in range(BATCH_ROWS * 3)]
    large = [change(written_us=NOW_US + n, note="x" * BATCH_BYTES) for n in range(3)]
    for sent, count_max in ((small, BATCH_ROWS), (large, 1)):
        node.tables.batch_max = 0
        writer.submit(delivery(*sent), settled)
        assert writer.commit({}, FOREVER_MS)
        assert count_max == node.tables.batch_max
    writer.close()


@pytest.mark.parametrize(
    ("of", "asked"),
    [
        ([(n, 0) for n in range(50)], 3),
        ([(0, n) for n in range(50)], 3),
        ([(n, n) for n in range(50)], 10),
        ([(n // 2, n) for n in range(50)] + [(99, 0)], 26),
        ([(1, 1), (1, 2), (2, 3), (3, 4), (4, 4)], 3),
    ],
)
def test_states_are_read_and_written_together(
    node: TablePlaces, tmp_path: Path, of: Sequence[tuple[int, int]], asked: int
) -> None:
    """Those of one partition, or of one row in each, and others in small groups."""
    kept = made(tmp_path)
    writer = kept.writer()
    wanted = []
    for total in (1, 2):
        rows = (change(written_us=NOW_US + total, of=each, total=total + each[1]) for each in of)
        writer.submit(delivery(*rows), settled)
        node.tables.asked.clear()
        assert writer.commit({}, FOREVER_MS)
        written = -(-len(of) // store_rows.STATES_MAX)
        assert asked + written == node.tables.asked["history_states"]
        wanted += [total + each[1] for each in of]
    writer.close()
    found = events(kept)
    assert wanted == [(event.post or {})["total"] for event in found]
    before = [(event.pre or {}).get("total") for event in found]
    assert [None] * len(of) + wanted[: len(of)] == before


def test_cqlsh_shows_what_was_written(node: TablePlaces, tmp_path: Path) -> None:
    """Keys and columns are JSON, and operations have their names."""
    kept = made(tmp_path, ttl_events="true", expand_deletes="true")
    writer = kept.writer()
    soon_s = kept.clock.wall_ms() // 1_000 + 5
    sent = (
        change(written_us=NOW_US, expires=soon_s, note="a"),
        change(written_us=NOW_US, of=(1, 2), total=2),
        change("DELETE_RANGE", written_us=NOW_US + 1, of=(1,), between=(2, 2)),
    )
    writer.submit(delivery(*sent), settled)
    assert writer.commit({}, FOREVER_MS)
    kept.clock.advance(6_000)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    rows = node.tables.rows("history_changes")
    shown = [(row["operation"] or b"").decode() for row in rows]
    assert ["insert", "insert", "delete_range", "delete", "ttl_delete"] == shown
    documents = [json.loads(row["document"] or b"") for row in rows]
    assert {"key": {"id": 1, "at": 1}, "change": {"note": "a"}} == documents[0]
    assert {"id": 1} == documents[2]["key"]
    assert [{"key": {"id": 1, "at": 2}}, {"key": {"id": 1, "at": 1}}] == documents[3:]


def test_places(node: TablePlaces, tmp_path: Path) -> None:
    """A place of tables names a file that has such a store."""
    del node
    assert ("a/w.yaml", "h") == table_parts("a/w.yaml#h")
    assert ("a/h#1.db", "") == table_parts("a/h#1.db")
    assert f"{tmp_path}/w.yaml#h" == whole_place("w.yaml#h")
    (tmp_path / "w.yaml").write_text("{state: s.db, source: {plugin: files}}")
    with pytest.raises(HistoryFileError, match="has no `store` in Cassandra"):
        opened("w.yaml#h", DrivenClock())
    with pytest.raises(ConfigError, match="in the folder of the job"):
        made(tmp_path, path=f"{tmp_path}/{FILE}#h")
