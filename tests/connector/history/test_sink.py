"""The sink `history` writes each change and the position behind it at once, or neither."""

import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.connector.history.errors import (
    HistoryBusyError,
    HistoryFileError,
    HistoryTableError,
    HistoryTruncatedError,
    ImageNotKeptError,
)
from headrace.connector.history.query import Event, Query
from headrace.connector.history.reading import History
from headrace.connector.history.sink import HistorySink
from headrace.connector.history.store.contract import PARTITION, Columns, Range
from headrace.connector.history.store.places import opened
from headrace.plugins import AbortedError, Batch, ConfigError, Delivery
from headrace.plugins.records.encoded import FactColumns
from headrace.plugins.testing import TransactionalDriver, TransactionalSuite
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.driver import HistoryDriver
from helpers.histories.failing import Failing, committed
from helpers.histories.kept import FOREVER_MS, Kept, beside, of_table, settled
from helpers.histories.oracle import changes
from helpers.histories.rows import TABLE, change, delivery
from helpers.recordings.batches import recorded_batches

pytestmark = pytest.mark.usefixtures("each_store")

NOW_US = 1_700_000_000_000_000


def made(folder: Path, **options: str) -> Kept:
    """Return an empty history of the table."""
    return Kept(DrivenClock(), **beside(folder, table=TABLE, seed="empty") | options)


def events(kept: Kept) -> list[Event]:
    """Return what a query sees a moment later."""
    kept.clock.advance(1)
    history = kept.history()
    try:
        query = Query(from_ms=0, limit=1_000)
        return [event for page in history.pages(query) for event in page.events]
    finally:
        history.close()


class TestHistorySink(TransactionalSuite):
    """It obeys the contract of sinks that are written exactly once."""

    @pytest.fixture
    def driver(self, tmp_path: Path) -> TransactionalDriver:
        """Return a history of its own."""
        return HistoryDriver(made(tmp_path), events)


def test_a_commit_that_fails_anywhere_leaves_nothing(tmp_path: Path) -> None:
    """At any statement, all is as before it; done again, each change is there once (HQ-11)."""
    kept = made(tmp_path)
    writer = kept.writer()
    writer.submit(delivery(change(written_us=NOW_US, note="0", total=0)), settled)
    assert writer.commit({"head": b"0"}, FOREVER_MS)
    sent = [
        change(written_us=NOW_US + 1, note="1"),
        change("DELETE", written_us=NOW_US + 2),
        change(written_us=NOW_US + 3, total=3),
    ]
    before = events(kept)
    for statement in range(1, 100):
        writer.submit(delivery(*sent), settled)
        failing = Failing(writer, statement)
        is_done = committed(writer)
        failing.heal()
        if is_done:
            break
        assert {"head": b"0"} == writer.begin(FOREVER_MS)
        assert before == events(kept)
    assert 5 < statement < 99
    writer.close()
    found = events(kept)
    assert [NOW_US, NOW_US + 1, NOW_US + 2, NOW_US + 3] == [event.written_us for event in found]
    assert {"note": None, "total": 3} == found[-1].latest == found[-1].post
    assert {"head": b"1"} == kept.sink.open_split("1-of-1").begin(FOREVER_MS)


def test_a_first_commit_that_fails_leaves_no_schema_behind(tmp_path: Path) -> None:
    """What it had given a number in the file gets one again."""
    kept = made(tmp_path)
    writer = kept.writer()
    for statement in range(1, 100):
        writer.submit(delivery(change(written_us=NOW_US, note="1")), settled)
        failing = Failing(writer, statement)
        is_done = committed(writer)
        failing.heal()
        if is_done:
            break
    writer.close()
    assert [{"note": "1"}] == [event.change for event in events(kept)]


def test_cycles_are_searched_again_behind_a_commit(tmp_path: Path) -> None:
    """They are not while it appends, and again behind it, also if it failed."""
    writer = made(tmp_path).writer()
    (file,) = writer._file.parts  # noqa: SLF001 (its store)
    append, seen = file.append, list[bool]()

    def refused(columns: Columns, now_ms: int) -> None:
        append(columns, now_ms)
        if columns:
            seen.append(gc.isenabled())
            if len(seen) > 1:
                raise HistoryBusyError("refused", place=file.place)

    file.append = refused  # type: ignore[method-assign]
    for is_done in (True, False):
        writer.submit(delivery(change(written_us=NOW_US, note="1")), settled)
        assert is_done is committed(writer)
        assert gc.isenabled()
    writer.close()
    assert [False, False] == seen


def reopened(kept: Kept, **options: Any) -> None:  # noqa: ANN401 (options of the sink)
    """Open the sink again with other options, as after ALTER CDC."""
    kept.clock.advance(1_000)
    kept.sink = HistorySink(replace(kept.sink.config, **options), kept.sink.context)
    kept.sink.open().close()


def commit(kept: Kept, *changes: Mapping[str, Any]) -> None:
    """Write changes."""
    writer = kept.writer()
    writer.submit(delivery(*changes), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()


def with_facts(batch: Batch, made: Delivery, table: str) -> Delivery:
    """Return a delivery with what the source says of its changes, besides their bytes."""
    facts = FactColumns()
    for record in batch.records():
        if record.schema.table == table:
            facts.add(record.timestamp_us, record.operation, origin={})
    return msgspec.structs.replace(
        made, encoded=msgspec.structs.replace(made.encoded, facts=facts.facts())
    )


@pytest.mark.parametrize("name", ["4.1-ops", "4.1-schema"])
def test_changes_without_images_are_kept_alike(tmp_path: Path, name: str) -> None:
    """Whether the source says beside them what they are or not, and as those with images."""
    schemas = 0
    for table in changes(name):
        batches = [(batch, of_table(batch, table)) for batch in recorded_batches(name)]
        plain = [made for _, made in batches]
        found = []
        for number, (include, deliveries) in enumerate(
            (
                ("change", plain),
                ("change", [with_facts(batch, made, table) for batch, made in batches]),
                ("latest", plain),
            )
        ):
            folder = tmp_path / f"{table}-{number}"
            kept = Kept(DrivenClock(), **beside(folder, table=table, include=include))
            writer = kept.writer()
            for each in deliveries:
                writer.submit(each, settled)
            assert writer.commit({}, FOREVER_MS)
            writer.close()
            store = opened(kept.sink.config.place, kept.clock)
            with store.reading():
                rows = list(store.changes(Range(0, FOREVER_MS)))
            store.close()
            found.append([msgspec.structs.replace(row, row=b"", before=None) for row in rows])
        assert found[0]
        assert found[0] == found[1] == found[2]
        schemas = max(schemas, len({row.schema for row in found[0]}))
    assert schemas > 1 or name == "4.1-ops"


def test_images_that_were_off_know_nothing_of_that_time(tmp_path: Path) -> None:
    """Also if the table was empty at first: what was written meanwhile is unknown, not old."""
    kept = made(tmp_path)
    commit(kept, change(written_us=NOW_US, note="old", total=1))
    reopened(kept, include=("change",))
    commit(kept, change("UPDATE", written_us=NOW_US + 1, note="unseen"))
    reopened(kept, include=("pre", "post"))
    commit(kept, change("UPDATE", written_us=NOW_US + 2, total=2))
    history = kept.history()
    kept.clock.advance(1)
    images = frozenset({"pre", "post"})
    since_ms = kept.clock.wall_ms() - 1
    (last,) = history.select(Query(from_ms=since_ms, scopes=images)).events
    history.close()
    assert ({}, {"total": 2}, True) == (last.pre, last.post, last.partial)


def test_workers_agree_on_what_is_kept(tmp_path: Path) -> None:
    """One that still has the former options commits nothing until it is opened again."""
    kept = made(tmp_path, include="change")
    former = kept.writer()
    reopened(kept, include=("change", "latest"))
    former.submit(delivery(change(written_us=NOW_US)), settled)
    with pytest.raises(AbortedError, match="another worker keeps other images"):
        former.commit({}, FOREVER_MS)
    former.close()
    commit(kept, change(written_us=NOW_US, note="seen"))
    history = kept.history()
    found = history.select(Query(from_ms=0, scopes=frozenset({"change"}))).events
    history.close()
    assert [{"note": "seen"}] == [event.change for event in found]


def test_the_newest_image_needs_states_of_today(tmp_path: Path) -> None:
    """When images are no longer kept, that of an older change is refused, by name and time."""
    kept = made(tmp_path, include="latest")
    commit(kept, change(written_us=NOW_US, note="old"))
    reopened(kept, include=("change",))
    kept.clock.advance(1)
    history = kept.history()
    query = Query(from_ms=0, to_ms=kept.clock.wall_ms() - 500, scopes=frozenset({"latest"}))
    with pytest.raises(ImageNotKeptError, match=r"the latest image was not kept .* to now"):
        history.select(query)
    history.close()


def test_pages_continue_while_what_was_read_is_removed(tmp_path: Path) -> None:
    """As long as the token is within what is kept; the query from its beginning is refused."""
    kept = made(tmp_path, retention="1h")
    start_ms = kept.clock.wall_ms()
    for number in range(3):
        kept.clock.advance(1_500_000 if number else 0)
        commit(kept, change(written_us=number))
    history = kept.history()
    query = Query(from_ms=start_ms, limit=2)
    first = history.select(query)
    kept.clock.advance(1_500_000)
    commit(kept, change(written_us=3))
    rest = history.select(replace(query, after=first.token))
    with pytest.raises(HistoryTruncatedError):
        history.select(query)
    history.close()
    assert [0, 1] == [event.written_us for event in first.events]
    assert [2, 3] == [event.written_us for event in rest.events]


def test_a_late_change_that_loses_changes_no_image(tmp_path: Path) -> None:
    """It is in the history, with equal images, and is not effective."""
    kept = made(tmp_path)
    writer = kept.writer()
    newer = change(written_us=NOW_US + 9, note="new", total=1)
    late = change("UPDATE", written_us=NOW_US, note="old")
    gone = change("DELETE", written_us=NOW_US + 20)
    buried = change("UPDATE", written_us=NOW_US + 15, note="buried")
    writer.submit(delivery(newer, late, gone, buried), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    _, lost, _, below = events(kept)
    assert ({"note": "new", "total": 1}, False) == (lost.pre, lost.effective)
    assert lost.pre == lost.post
    assert ({}, {}, False) == (below.pre, below.post, below.effective)
    assert {"note": "buried"} == below.change


def test_a_value_that_expired_is_gone_from_later_images(tmp_path: Path) -> None:
    """An image is what SELECT would have shown when the change arrived."""
    kept = made(tmp_path)
    writer = kept.writer()
    now_s = kept.clock.wall_ms() // 1_000
    writer.submit(delivery(change(written_us=NOW_US, expires=now_s + 60, note="brief")), settled)
    assert writer.commit({}, FOREVER_MS)
    kept.clock.advance(61_000)
    writer.submit(delivery(change("UPDATE", written_us=NOW_US + 1, total=1)), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    first, second = events(kept)
    assert {"note": "brief", "total": None} == first.post
    assert {} == second.pre
    assert {"note": None, "total": 1} == second.post


def test_deletions_of_ranges_are_bounded(tmp_path: Path) -> None:
    """The same range again replaces the older one; others are kept as long as they can matter."""
    kept = made(tmp_path)
    writer = kept.writer()
    day_us = 86_400_000_000
    deletions = [
        change("DELETE_RANGE", written_us=NOW_US + n, of=(1,), between=(1, 5)) for n in range(500)
    ]
    old = [
        change("DELETE_RANGE", written_us=NOW_US - 11 * day_us, of=(1,), between=(n, n))
        for n in range(100, 400)
    ]
    late = [
        change(written_us=NOW_US + 499, of=(1, 5), note="covered"),
        change(written_us=NOW_US + 500, of=(1, 5), note="newer"),
        change(written_us=NOW_US, of=(1, 6), note="beside"),
    ]
    writer.submit(delivery(*old, *deletions, *late), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    store = opened(kept.sink.config.place, kept.clock)
    key = delivery(*late).encoded.keys[0] or b""
    ((_, _, state),) = store.states([(key, PARTITION)])
    store.close()
    covered, newer, beside_it = events(kept)[-3:]
    assert ({}, False) == (covered.post, covered.effective)
    assert ("newer", "beside") == ((newer.post or {})["note"], (beside_it.post or {})["note"])
    assert len(state) < 64 * 100


def test_a_clock_that_is_set_back_sets_no_arrival_back(tmp_path: Path) -> None:
    """Arrivals count on from the last one, so that nothing arrives in what was read (HQ-3)."""
    kept = made(tmp_path)
    writer = kept.writer()
    for step_ms in (1_000, -600_000, 1, 900_000):
        kept.clock.advance(step_ms)
        writer.submit(delivery(change(written_us=NOW_US)), settled)
        assert writer.commit({}, FOREVER_MS)
    writer.close()
    arrivals = [event.arrival for event in events(kept)]
    assert sorted(set(arrivals)) == arrivals
    assert 4 == len(arrivals)


def test_what_was_said_to_be_final_is_final(tmp_path: Path) -> None:
    """With any clock of a writer, nothing arrives before a `safe_until` of a reader (HQ-3)."""
    kept, ahead = made(tmp_path), DrivenClock()
    writer = kept.writer()
    reader = History(opened(kept.sink.config.place, ahead), frozenset(), ahead)
    ahead.advance(5_000)
    safe_until_ms = reader.select(Query(from_ms=0)).safe_until_ms
    writer.submit(delivery(change(written_us=NOW_US)), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    ahead.advance(60_000)
    (event,) = reader.select(Query(from_ms=0)).events
    reader.close()
    assert event.time_ms >= safe_until_ms == ahead.wall_ms() - 60_000


def test_a_change_of_another_table_is_refused(tmp_path: Path) -> None:
    """A history has one table."""
    writer = made(tmp_path).writer()
    with pytest.raises(HistoryTableError, match=r"shop\.carts, expected shop\.orders"):
        writer.submit(delivery(change(written_us=1), table="shop.carts"), settled)
    writer.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retention": "7"}, "retention: expected a duration, found '7'"),
        ({"retention": "0d"}, "retention: expected a duration"),
        ({"include": "pre,past"}, "include: expected some of change, pre, post, latest"),
        ({"table": "orders"}, r"table: expected keyspace\.table"),
        ({"transforms": "m"}, "transforms: a history keeps changes as they are"),
        ({"include": "change", "ttl_events": "true"}, "ttl_events: needs the states of rows"),
        ({"path": "x/"}, "path: 'x/' names no file"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: Mapping[str, str], message: str) -> None:
    """Each mistake is named with its key."""
    with pytest.raises(ConfigError, match=message):
        made(tmp_path, **options)


def test_buckets_and_table_cannot_be_changed(tmp_path: Path) -> None:
    """The file says what it was made for."""
    made(tmp_path, buckets="4").writer().close()
    with pytest.raises(HistoryFileError, match=r"shop\.orders in 4 buckets, expected"):
        made(tmp_path)
