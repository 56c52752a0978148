"""What expires is an event where a history keeps such events: once, and in its place."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from headrace.connector.history import images
from headrace.connector.history.client import connect
from headrace.connector.history.config import SCOPES
from headrace.connector.history.following import tail
from headrace.connector.history.images import Expiries
from headrace.connector.history.query import Event, Query, operations_of
from headrace.connector.history.reading import History
from headrace.connector.history.seeding import begin_seed
from headrace.connector.history.sink import HistorySink
from headrace.connector.history.store.contract import Range
from headrace.connector.history.writing.writer import HistoryWriter
from headrace.connector.rows.message_pack import BadStateError
from headrace.plugins import Operation
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.mutation.changes import Change
from helpers.histories.failing import Failing, committed
from helpers.histories.kept import FOREVER_MS, Kept, beside, of_table, settled
from helpers.histories.oracle import Oracle, changes
from helpers.histories.rows import TABLE, change, delivery
from helpers.recordings.batches import recorded_batches
from helpers.settings.seeds import soaked

pytestmark = pytest.mark.usefixtures("each_store")

NOW_US = 1_700_000_000_000_000
NOW_S = NOW_US // 1_000_000 + 1  # As the driven clock begins.
RECORDINGS = ("4.1-ops", "6.0-v9-random", *soaked("5.0-random"))
PER_COMMIT = 3
WIDE = (Operation.DELETE_RANGE, Operation.DELETE_PARTITION)
ALL = Query(from_ms=0, limit=1_000)


def made(folder: Path, **options: str) -> Kept:
    """Return an empty history that keeps what expires."""
    given = {"table": TABLE, "seed": "empty", "ttl_events": "true"} | options
    return Kept(DrivenClock(), **beside(folder, **given))


def commit(writer: HistoryWriter, *given: Mapping[str, Any]) -> None:
    """Commit changes."""
    writer.submit(delivery(*given), settled)
    assert writer.commit({}, FOREVER_MS)


def seen(history: History, query: Query = ALL) -> list[Event]:
    """Return the events of all pages."""
    return [event for page in history.pages(query) for event in page.events]


def test_a_row_that_expires_is_a_deletion(tmp_path: Path) -> None:
    """With the row as it was, at the time of its expiry; to Phoenix's users it is `ttl_delete`."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    commit(writer, change(written_us=NOW_US, expires=NOW_S + 60, note="brief", total=1))
    kept.clock.advance(59_999)
    assert 1 == len(seen(history))
    kept.clock.advance(1)
    _, gone = seen(history)
    writer.close()
    history.close()
    row = {"note": "brief", "total": 1}
    assert (Operation.DELETE, True, True) == (gone.operation, gone.expired, gone.effective)
    assert (row, None, None, {}) == (gone.pre, gone.change, gone.post, gone.latest)
    assert ({"id": 1, "at": 1}, (NOW_S + 60) * 1_000_000) == (gone.key, gone.written_us)
    document = {"event_type": "ttl_delete", "pre_image": row, "latest_image": {}}
    assert document == gone.json_document()


def test_a_value_that_expires_is_an_update(tmp_path: Path) -> None:
    """Of a row that stays; one that was overwritten or deleted before is none."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    for number in (1, 2, 3):
        of = (number, 1)
        commit(writer, change(written_us=NOW_US, of=of, total=number))
        given = change("UPDATE", written_us=NOW_US + 1, of=of, expires=NOW_S + 60, note="brief")
        commit(writer, given)
    commit(writer, change("UPDATE", written_us=NOW_US + 2, of=(2, 1), note="lasting"))
    commit(writer, change("DELETE_RANGE", written_us=NOW_US + 2, of=(3,), between=(0, 9)))
    kept.clock.advance(60_000)
    *_, last = seen(history)
    assert 9 == len(seen(history))
    writer.close()
    history.close()
    assert (Operation.UPDATE, True, {"id": 1, "at": 1}) == (last.operation, last.expired, last.key)
    before, after = {"note": "brief", "total": 1}, {"note": None, "total": 1}
    assert (before, after, after) == (last.pre, last.post, last.latest)
    assert "ttl_update" == last.json_document()["event_type"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "each_store"), [(name, "file") for name in RECORDINGS], indirect=["each_store"]
)
def test_images_around_expiries_are_what_select_shows(name: str, tmp_path: Path) -> None:
    """By the source's own fold; and each image begins as the last one of its row ended (HQ-5)."""
    expired = 0
    for number, (table, mine) in enumerate(changes(name).items()):
        times = sorted(expiries(mine))
        if not times:
            continue
        options = {"table": table, "expand_deletes": "true", "retention": "9000d"}
        (tmp_path / str(number)).mkdir()
        kept = made(tmp_path / str(number), **options)
        kept.clock.advance((times[0] - 5) * 1_000 - kept.clock.wall_ms())
        writer, history = kept.writer(), kept.history()
        step_ms = (times[-1] - times[0]) * 1_000 // (len(mine) // PER_COMMIT + 1)
        for batch in recorded_batches(name):
            sent = of_table(batch, table)
            for begin in range(0, len(sent.encoded), PER_COMMIT):
                part = range(begin, min(len(sent.encoded), begin + PER_COMMIT))
                writer.submit(
                    msgspec.structs.replace(sent, encoded=sent.encoded.chosen(part)), settled
                )
                assert writer.commit({}, FOREVER_MS)
                kept.clock.advance(step_ms)
        kept.clock.advance((times[-1] + 1) * 1_000 - kept.clock.wall_ms())
        events = seen(history)
        writer.close()
        history.close()
        expired += compared(events, mine)
    assert expired > 20


def expiries(mine: Sequence[Change]) -> set[int]:
    """Return the seconds at which something in *mine* expires."""
    cells = {cell.expires_s for each in mine for c in each.columns for cell in c.cells}
    return {at_s for at_s in cells | {each.expires_s for each in mine} if at_s is not None}


def compared(events: Sequence[Event], mine: Sequence[Change]) -> int:
    """Compare images with those of the oracle; return how many events expired."""
    oracle, written = Oracle(mine[0].table), iter(mine)
    of_key: dict[str, Change] = {}
    keys = [column.name for column in mine[0].table.partition_key]
    last: dict[str, Any] = {}
    expired = 0
    for event in events:
        partition = json.dumps([event.key[each] for each in keys])
        row = json.dumps([event.key, event.static])
        at_s = before_s = event.time_ms // 1_000
        if event.expired:
            at_s = event.written_us // 1_000_000
            before_s = at_s - 1
            expired += 1
        elif not event.derived:
            of_key[partition] = next(written)
        of = of_key[partition]
        if event.operation in WIDE or event.derived:
            if not event.derived:
                oracle.add(of)
                last.pop(json.dumps([event.key, True]), None)
            last.pop(row, None)
            continue
        assert oracle.image(of, event, before_s) == event.pre == last.get(row, event.pre)
        if not event.expired:
            oracle.add(of)
        post = oracle.image(of, event, at_s)
        assert (None if event.operation is Operation.DELETE else post) == event.post
        assert post == (event.post or {})
        last[row] = post
    assert next(written, None) is None
    for event in events:
        row = json.dumps([event.key, event.static])
        assert last.get(row, event.latest) == event.latest, row
    return expired


def test_a_range_that_was_read_stays_the_same(tmp_path: Path) -> None:
    """What expires later arrives behind all that was final, by any process (HQ-2, HQ-3)."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    commit(writer, change(written_us=NOW_US, expires=NOW_S + 5, note="a"))
    kept.clock.advance(4_999)
    page = history.select(ALL)
    closed = replace(ALL, to_ms=page.safe_until_ms)
    before = seen(history, closed)
    kept.clock.advance(10_000)
    commit(writer, change(written_us=NOW_US + 1, of=(2, 1), note="b"))
    _, gone, other = seen(history)
    assert gone.expired
    assert page.may_come <= gone.arrival < other.arrival
    without_latest = frozenset(SCOPES[:3])
    assert [structs.replace(e, latest=None) for e in before] == seen(
        history, replace(closed, scopes=without_latest)
    )
    writer.close()
    history.close()


def test_an_event_of_expiry_comes_once(tmp_path: Path) -> None:
    """Wherever its transaction fails, and though writers and readers both look for what is due."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    commit(writer, change(written_us=NOW_US, expires=NOW_S + 5, note="a"))
    kept.clock.advance(6_000)
    for statement in range(1, 100):
        writer.submit(delivery(change("UPDATE", written_us=NOW_US + 9, total=1)), settled)
        failing = Failing(writer, statement)
        is_done = committed(writer)
        failing.heal()
        if is_done:
            break
        writer.begin(FOREVER_MS)
    assert 4 < statement < 99
    _, gone, late = seen(history)
    writer.close()
    history.close()
    assert (True, False) == (gone.expired, late.expired)
    assert ({}, {"note": None, "total": 1}) == (late.pre, late.post)


@pytest.mark.parametrize("by_reader", [False, True])
def test_many_expiries_are_taken_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_reader: bool
) -> None:
    """All of them come, each once, in the order of their times."""
    monkeypatch.setattr(images, "EXPIRED_MAX", 100)
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    count = images.EXPIRED_MAX * 2 + 1
    commit(
        writer,
        *(change(written_us=NOW_US, of=(n, 1), expires=NOW_S + 5 + n % 9) for n in range(count)),
    )
    kept.clock.advance(60_000)
    if not by_reader:
        commit(writer)
    events = [event for event in seen(history) if event.expired]
    writer.close()
    history.close()
    assert sorted(range(count)) == sorted(event.key["id"] for event in events)
    times = [event.written_us for event in events]
    assert sorted(times) == times


def test_a_commit_that_expiries_delay_can_be_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind its deadline it says that nothing is decided yet; nothing is lost or doubled."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    monkeypatch.setattr(images, "EXPIRED_MAX", 100)
    count = images.EXPIRED_MAX + 1
    commit(writer, *(change(written_us=NOW_US, of=(n, 1), expires=NOW_S + 5) for n in range(count)))
    kept.clock.advance(60_000)
    writer.submit(delivery(change(written_us=NOW_US + 1, of=(count, 1))), settled)
    outcomes = [writer.commit({}, kept.clock.monotonic_ms()) for _ in range(3)]
    assert [False, False, True] == outcomes
    events = seen(history)
    writer.close()
    history.close()
    assert count == sum(event.expired for event in events)
    assert 2 * count + 1 == len(events)


def test_events_of_expiry_can_be_switched_on(tmp_path: Path) -> None:
    """They come for rows that are written from then on."""
    kept = made(tmp_path, ttl_events="false")
    writer, history = kept.writer(), kept.history()
    for number in (1, 2):
        commit(writer, change(written_us=NOW_US, of=(number, 1), expires=NOW_S + 600, note="old"))
    writer.close()
    kept.sink = HistorySink(replace(kept.sink.config, ttl_events=True), kept.sink.context)
    kept.sink.open().close()
    writer = kept.writer()
    commit(writer, change("UPDATE", written_us=NOW_US + 1, of=(2, 1), expires=NOW_S + 9, total=1))
    kept.clock.advance(601_000)
    gone = [event for event in seen(history) if event.expired]
    writer.close()
    history.close()
    assert [2, 2] == [event.key["id"] for event in gone]
    assert [Operation.UPDATE, Operation.DELETE] == [event.operation for event in gone]


def test_an_idle_history_shows_what_expired_to_who_waits(tmp_path: Path) -> None:
    """TAIL returns it at the end of its wait, though no client writes."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    commit(writer, change(written_us=NOW_US, expires=NOW_S + 5, note="a"))
    writer.close()
    since = Query(from_ms=kept.clock.wall_ms() + 1)
    page = tail(history, since, wait_ms=10_000, pause=lambda s: kept.clock.advance(int(s * 1_000)))
    history.close()
    assert [True] == [event.expired for event in page.events]


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["ttl_delete"], [4]),
        (["TTL_UPDATE"], [2]),
        (["ttl_delete", "insert"], [0, 4]),
        (["delete"], [3, 4]),
        (["update"], [1, 2]),
        (["upsert"], [0, 1]),
        (["delete", "ttl_delete"], [3, 4]),
        (["ttl_update", "ttl_delete"], [2, 4]),
    ],
)
def test_a_query_chooses_what_expired(names: list[str], wanted: list[int], tmp_path: Path) -> None:
    """By its type of event; a value of `op` has also what expired. Counts say the same."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    commit(writer, change(written_us=NOW_US, of=(1, 1), expires=NOW_S + 60, total=1))
    commit(writer, change("UPDATE", written_us=NOW_US + 1, of=(1, 1), expires=NOW_S + 5, note="a"))
    kept.clock.advance(6_000)
    commit(writer, change("DELETE", written_us=NOW_US, of=(2, 1)))
    kept.clock.advance(60_000)
    every = seen(history)
    query = history.fixed(replace(ALL, operations=operations_of(names, "op")))
    found = seen(history, query)
    counted = history.count(query)
    writer.close()
    history.close()
    types = ["upsert", "upsert", "ttl_update", "delete", "ttl_delete"]
    assert types == [event.json_document()["event_type"] for event in every]
    assert [every[number] for number in wanted] == found
    assert len(wanted) == counted


def test_a_reader_that_may_not_write_appends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees what is there; the next commit appends."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    commit(writer, change(written_us=NOW_US, expires=NOW_S + 5, note="a"))
    kept.clock.advance(6_000)
    with monkeypatch.context() as patched:
        patched.setattr(history.file, "can_write", lambda: False)
        assert [False] == [event.expired for event in seen(history)]
    commit(writer)
    assert [False, True] == [event.expired for event in seen(history)]
    writer.close()
    history.close()


def test_what_expired_by_its_arrival_has_no_event(tmp_path: Path) -> None:
    """No image showed it: arrivals count on when the clock is set back, images are as of them."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    kept.clock.advance(20_000)
    commit(writer, change(written_us=NOW_US, of=(2, 1)))
    kept.clock.advance(-15_000)
    commit(writer, change(written_us=NOW_US, expires=NOW_S + 10, note="a"))
    kept.clock.advance(60_000)
    commit(writer, change("UPDATE", written_us=NOW_US + 1, total=1))
    events = seen(history)
    writer.close()
    history.close()
    assert [{}, {}] == [event.pre for event in events[1:]]
    assert 3 == len(events)


def test_what_becomes_due_meanwhile_comes_before_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit, and a seed, look again within their transactions."""
    kept = made(tmp_path, seed="snapshot")
    writer, history = kept.writer(), kept.history()
    begin_seed(history.file, "seed-1", kept.clock.wall_ms() * 1_000)
    for number in (1, 2):
        commit(writer, change(written_us=NOW_US, of=(number, 1), expires=NOW_S + 5, note="a"))
    with monkeypatch.context() as patched:
        patched.setattr(Expiries, "is_due", lambda *_: False)  # A moment before.
        kept.clock.advance(6_000)
        commit(writer, change("UPDATE", written_us=NOW_US + 1, total=1))
    kinds = [(event.key["id"], event.expired) for event in seen(history)]
    assert [(1, False), (2, False), (1, True), (2, True), (1, False)] == kinds
    commit(writer, change(written_us=NOW_US + 2, expires=NOW_S + 9, note="b"))
    kept.clock.advance(6_000)
    rows = HistorySink(kept.sink.config, context(kept.clock, job="seed-1")).open()
    rows.submit(delivery(change(written_us=NOW_US + 3, note="c")), settled)
    rows.close()
    last = seen(history)[-1]
    writer.close()
    history.close()
    assert (True, {"note": "b", "total": 1}) == (last.expired, last.pre)


def test_rows_of_a_seed_expire(tmp_path: Path) -> None:
    """As if the logs had them."""
    kept = made(tmp_path, seed="snapshot")
    history = kept.history()
    begin_seed(history.file, "seed-1", kept.clock.wall_ms() * 1_000)
    sink = HistorySink(kept.sink.config, context(kept.clock, job="seed-1"))
    rows = sink.open()
    for _ in range(2):  # A range that is read again.
        read = change(written_us=NOW_US, expires=NOW_S + 5, note="seeded", total=1)
        rows.submit(delivery(read), settled)
    rows.close()
    kept.clock.advance(6_000)
    (gone,) = seen(history)
    history.close()
    assert (True, {"note": "seeded", "total": 1}) == (gone.expired, gone.pre)


def test_the_source_leaves_out_what_expired(tmp_path: Path) -> None:
    """As a deletion with a write time, it would hide writes that are older and arrive later."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    commit(writer, change(written_us=NOW_US, expires=NOW_S + 5, note="a"))
    kept.clock.advance(6_000)
    commit(writer, change(written_us=NOW_US - 1, note="late"))
    writer.close()
    assert [False, True, False] == [event.expired for event in seen(history)]
    read = history.changes(0, frozenset({"pre"}), 9)
    history.close()
    assert [NOW_US, NOW_US - 1] == [each.written_us for each in read]


def test_a_damaged_state_says_what_helps(tmp_path: Path) -> None:
    """A commit folds it, a query renders it."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    commit(writer, change(written_us=NOW_US, note="a"))
    with history.file.reading():
        (kept_one,) = history.file.changes(Range(0, FOREVER_MS))
    (file,) = history.file.parts
    with file.writing():
        names = [(kept_one.key, kept_one.row)]
        assert list(file.states(names))
        file.keep_states(dict.fromkeys(names, b"\x82\xa7deleted"), {})
    writer.submit(delivery(change("UPDATE", written_us=NOW_US + 1, total=1)), settled)
    with pytest.raises(BadStateError, match=r"hint: .* ALTER CDC"):
        writer.commit({}, FOREVER_MS)
    with pytest.raises(BadStateError, match=r"hint: .* ALTER CDC"):
        seen(history)
    writer.close()
    history.close()


def test_retention_of_what_expired_truncates_no_source(tmp_path: Path) -> None:
    """A source that has read all changes continues, though an event behind them was removed."""
    kept = made(tmp_path, retention="1h")
    writer, history = kept.writer(), kept.history()
    commit(writer, change(written_us=NOW_US, expires=NOW_S + 5, note="a"))
    kept.clock.advance(6_000)
    first, gone = seen(history)
    kept.clock.advance(3_660_000)
    commit(writer, change(written_us=NOW_US + 1, of=(2, 1)))
    assert first.arrival == history.file.removed() < gone.arrival
    read = history.changes(first.arrival, frozenset({"pre"}), 9)
    writer.close()
    history.close()
    assert [NOW_US + 1] == [each.written_us for each in read]


def test_a_frame_has_what_expired(tmp_path: Path) -> None:
    """With its images as structs, and nothing that was written; a read looks for what is due."""
    kept = made(tmp_path, retention="9999d")
    writer = kept.writer()
    commit(writer, change(written_us=NOW_US, expires=NOW_S + 5, note="a"))
    writer.close()
    with connect(kept.sink.config.place) as opened:  # By the clock of the machine.
        rows = opened.select(0, include=SCOPES[:3]).arrow().to_pylist()
        gone = opened.select(0, include=SCOPES[:3], operations=["ttl_delete"]).arrow().to_pylist()
    assert rows[1:] == gone
    shown = [(row["expired"], row["change"] is None, row["post"] is None) for row in rows]
    assert [(False, False, False), (True, True, True)] == shown
    assert {"id": 1, "at": 1, "note": "a", "total": None} == rows[1]["pre"]
