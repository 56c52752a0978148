"""The several files of a history belong together, and answer as one file does."""

import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.history.errors import (
    HistoryFileError,
    HistoryMissingError,
    HistoryTruncatedError,
)
from headrace.connector.history.query import Event, Query
from headrace.connector.history.seeding import begin_seed, end_seed, seed_now
from headrace.connector.history.sink import HistorySink
from headrace.connector.history.store.group import HistoryGroup, part_path
from headrace.connector.history.store.places import opened
from headrace.plugins import ConfigError
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, beside, fill, of_table, settled
from helpers.histories.rows import TABLE, change, delivery
from helpers.recordings.batches import recorded_batches

FILES = 3
RECORDED = "hazel_patient.onyx_walnut"
SCOPES = frozenset({"change", "pre", "post", "latest"})


def made(folder: Path, **options: str) -> Kept:
    """Return a history in several files."""
    given = beside(folder, table=TABLE, seed="empty", files=str(FILES))
    return Kept(DrivenClock(), **given | options)


def commit(kept: Kept, total: int) -> None:
    """Write a change of many keys."""
    writer = kept.writer()
    given = [change(written_us=total, of=(key, 1), total=total) for key in range(12)]
    writer.submit(delivery(*given), settled)
    assert writer.commit({"head": b"%d" % total}, FOREVER_MS)
    writer.close()


def events(kept: Kept, query: Query | None = None) -> list[Event]:
    """Return the events of a query, by default all."""
    kept.clock.advance(FILES)
    history = kept.history()
    try:
        pages = history.pages(query or Query(from_ms=0, limit=10))
        return [event for page in pages for event in page.events]
    finally:
        history.close()


def path_of(kept: Kept) -> Path:
    """Return the path of its head."""
    return Path(kept.sink.config.place)


def copied(path: Path, folder: Path) -> Path:
    """Copy the files of a history, which no process has open, into a new folder."""
    shutil.copytree(path.parent, folder)
    return folder / path.name


def shown(event: Event) -> Mapping[str, Any]:
    """Return what several files do not change."""
    return {name: getattr(event, name) for name in event.__struct_fields__ if name != "arrival"}


def test_queries_answer_as_those_of_one_file(tmp_path: Path) -> None:
    """All images of a recording, by key, bucket and operation, in both orders, in parts."""
    found = []
    for files in ("1", "3"):
        given = beside(tmp_path / files, table=RECORDED, seed="empty", files=files)
        kept = Kept(DrivenClock(), **given)
        sent = [of_table(batch, RECORDED) for batch in recorded_batches("4.1-ops")]
        fill(kept, sent, per_commit=90, step_ms=20)
        whole = events(kept)
        assert sorted({event.arrival for event in whole}) == [event.arrival for event in whole]
        per_key: dict[str, list[Mapping[str, Any]]] = {}
        for event in whole:
            per_key.setdefault(str(event.key), []).append(shown(event))
        everything = Query(from_ms=0, limit=50, scopes=SCOPES)
        assert whole == events(kept, replace(everything, descending=True))[::-1]
        of_buckets = replace(everything, partitions=frozenset({1, 4}))
        assert [e for e in whole if e.partition_id in {1, 4}] == events(kept, of_buckets)
        of_key = replace(everything, key=whole[7].key)
        mine = [e for e in whole if whole[7].key.items() <= e.key.items()]
        assert mine == events(kept, of_key)
        history = kept.history()
        fixed = history.fixed(everything)
        parts = history.divided(fixed, 37)
        assert history.count(fixed) == len(whole)
        divided = [[e for page in history.pages(part) for e in page.events] for part in parts]
        history.close()
        assert {37} == {len(part) for part in divided[:-1]}
        assert whole == [event for part in divided for event in part]
        found.append(per_key)
    assert len(found[0]) > 5
    assert found[0] == found[1]


def test_each_file_is_needed(tmp_path: Path) -> None:
    """One that is missing, and one of another history, are named."""
    kept, other = made(tmp_path / "a"), made(tmp_path / "b")
    commit(kept, 1)
    part = part_path(path_of(kept), 1)
    part.rename(tmp_path / "away")
    with pytest.raises(HistoryFileError, match=r"history\.db\.2: is missing: it is file 2 of 3"):
        kept.history()
    shutil.copy(part_path(path_of(other), 1), part)
    with pytest.raises(HistoryFileError, match=r"history\.db\.2: is not file 2 of the history"):
        kept.history()
    shutil.copy(part_path(path_of(kept), 2), part)
    with pytest.raises(HistoryFileError, match=r"history\.db\.2: is not file 2 of the history"):
        kept.sink.open()
    (tmp_path / "away").replace(part)
    assert 12 == len(events(kept))


def test_a_file_is_not_a_history(tmp_path: Path) -> None:
    """Nor is the head, without the others, one of an older headrace."""
    kept = made(tmp_path)
    with pytest.raises(HistoryFileError, match="is file 1 of a history in 3 files"):
        opened(str(part_path(path_of(kept), 0)), kept.clock)
    version = sqlite3.connect(path_of(kept)).execute("PRAGMA user_version").fetchone()
    assert (8,) == version


@pytest.mark.parametrize("restored", [0, 1, 2, 3])
def test_a_file_that_was_restored_from_another_time_is_refused(
    tmp_path: Path, restored: int
) -> None:
    """The head (0), or another: to readers and to writers, also to those that had it open."""
    kept = made(tmp_path / "a")
    commit(kept, 1)
    old = copied(path_of(kept), tmp_path / "old")
    commit(kept, 2)
    commit(kept, 3)
    given, path = (p if not restored else part_path(p, restored - 1) for p in (old, path_of(kept)))
    shutil.copy(given, path)
    with pytest.raises(HistoryFileError, match=r"restored from another time"):
        kept.history()
    with pytest.raises(HistoryFileError, match=r"restored from another time"):
        kept.writer()


def test_a_file_that_misses_only_what_the_head_still_has_takes_it(tmp_path: Path) -> None:
    """One commit back is as after a crash."""
    kept = made(tmp_path / "a")
    commit(kept, 1)
    old = copied(path_of(kept), tmp_path / "old")
    commit(kept, 2)
    shutil.copy(part_path(old, 1), part_path(path_of(kept), 1))
    assert len(events(kept)) < 24
    kept.writer().close()
    found = events(kept)
    assert [1, 2] * 12 == [e.change["total"] for e in sorted(found, key=_by_key) if e.change]


def _by_key(event: Event) -> tuple[int, int]:
    return int(str(event.key["id"])), event.arrival


def test_the_number_of_files_cannot_be_changed(tmp_path: Path) -> None:
    """It is named what there is, and what was expected."""
    kept = made(tmp_path)
    for files, expected in (("4", "in 3 files, expected 4"), ("1", "in 3 files, expected 1")):
        with pytest.raises(HistoryFileError, match=expected):
            made(tmp_path, files=files)
    assert [] == events(kept)
    made(tmp_path / "one", files="1")
    with pytest.raises(HistoryFileError, match="is a history in one file, expected 3"):
        made(tmp_path / "one")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"files": "9"}, "files: expected at most 8, one for each bucket; found 9"),
        ({"path": "worker.yaml#h"}, "files: a history in tables has no files"),
    ],
)
def test_the_number_of_files_is_checked(options: Mapping[str, str], message: str) -> None:
    """It has a bucket for each, and is for files only."""
    given = {"path": "h.db", "table": TABLE, "files": "2", **options}
    with pytest.raises(ConfigError, match=message):
        Kept(DrivenClock(), **given)


def test_purge_removes_all_files(tmp_path: Path) -> None:
    """With those that SQLite has beside them."""
    kept = made(tmp_path)
    commit(kept, 1)
    store = opened(str(path_of(kept)), kept.clock)
    assert isinstance(store, HistoryGroup)
    assert {f"history.db{ending}" for ending in ("", ".1", ".2", ".3")} <= {
        each.name for each in tmp_path.iterdir()
    }
    store.purge()
    assert [] == list(tmp_path.iterdir())


def test_a_history_whose_making_was_broken_off_is_made_whole(tmp_path: Path) -> None:
    """Before that there is none."""
    kept = made(tmp_path)
    part_path(path_of(kept), 2).unlink()
    head = sqlite3.connect(path_of(kept))
    head.execute("UPDATE files SET is_whole = 0")
    head.commit()
    head.close()
    with pytest.raises(HistoryMissingError):
        kept.history()
    kept.sink.open().close()
    commit(kept, 1)
    assert 12 == len(events(kept))


def test_retention_is_of_all_files(tmp_path: Path) -> None:
    """A query that begins before what one of them keeps is refused."""
    kept = made(tmp_path, retention="1h")
    start_ms = kept.clock.wall_ms()
    for total in (1, 2, 3):
        commit(kept, total)
        kept.clock.advance(1_800_001)
    commit(kept, 4)
    with pytest.raises(HistoryTruncatedError):
        events(kept, Query(from_ms=start_ms, limit=50))
    found = events(kept, Query(from_ms=start_ms + 2_000_000, limit=50))
    assert [3] * 12 + [4] * 12 == [(event.change or {})["total"] for event in found]


def test_images_are_kept_from_when_all_files_keep_them(tmp_path: Path) -> None:
    """Those that were off know nothing of that time."""
    kept = made(tmp_path, include="change")
    commit(kept, 1)
    kept.clock.advance(1_000)
    kept.sink = HistorySink(replace(kept.sink.config, include=("post",)), kept.sink.context)
    kept.sink.open().close()
    kept.clock.advance(1_000)
    since_ms = kept.clock.wall_ms()
    commit(kept, 2)
    query = Query(from_ms=since_ms, limit=50, scopes=frozenset({"post"}))
    found = events(kept, query)
    assert 12 * [({"total": 2}, True)] == [(event.post, event.partial) for event in found]
    with pytest.raises(ConfigError, match="the post image was not kept"):
        events(kept, replace(query, from_ms=0))


def test_a_seed_is_one_for_all_files(tmp_path: Path) -> None:
    """It starts when all know it, and done when all are."""
    kept = made(tmp_path, seed="snapshot")
    store = opened(str(path_of(kept)), kept.clock)
    assert seed_now(store) is None
    begin_seed(store.parts[0], "r", 5)
    assert seed_now(store) is None
    begin_seed(store, "r", 5)
    started = seed_now(store)
    assert started is not None
    assert ("r", None) == (started.run, started.done)
    end_seed(store.parts[0], kept.clock.wall_ms())
    assert seed_now(store) == started
    end_seed(store, kept.clock.wall_ms())
    done = seed_now(store)
    store.close()
    assert done is not None
    assert done.done


def test_a_change_in_one_file_is_seen_at_once(tmp_path: Path) -> None:
    """By those who follow: the other files promise that nothing comes before it."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    query = Query(from_ms=0, limit=50)
    for total in (1, 2):
        writer.submit(delivery(change(written_us=total, of=(1, 1), total=total)), settled)
        assert writer.commit({}, FOREVER_MS)
        assert total == len(history.select(query, settles=False).events)
        assert total == len(history.changes(0, frozenset(), 50))
    writer.close()
    history.close()


def test_a_reader_that_may_not_write_waits_for_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees a change when no file can have an earlier one."""
    kept = made(tmp_path)
    writer, history = kept.writer(), kept.history()
    for part in history.file.parts:
        monkeypatch.setattr(part, "can_write", lambda: False)
    writer.submit(delivery(change(written_us=1, of=(1, 1), total=1)), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    query = Query(from_ms=0, limit=50)
    assert [] == history.select(query).events
    kept.clock.advance(FILES)
    commit(kept, 2)
    kept.clock.advance(FILES)
    commit(kept, 3)
    found = history.select(query).events
    history.close()
    assert found[0].change == {"total": 1}
    assert 13 <= len(found) < 25


def test_an_alter_that_was_broken_off_keeps_what_all_files_keep(tmp_path: Path) -> None:
    """Until the next start of the sink completes it, images are refused, never wrong."""
    kept = made(tmp_path, include="change")
    store = opened(str(path_of(kept)), kept.clock)
    kept.clock.advance(1_000)
    scopes = {"scopes": SCOPES, "states": True, "is_empty": False}
    store.parts[0].keep_scopes(now_ms=kept.clock.wall_ms(), **scopes)  # type: ignore[arg-type]
    assert {"change"} == store.epochs()[-1].scopes
    store.keep_scopes(now_ms=kept.clock.wall_ms() + 500, **scopes)  # type: ignore[arg-type]
    assert store.epochs()[-1].scopes == SCOPES
    assert store.epochs()[-1].states_since_us == (kept.clock.wall_ms() + 500) * 1_000
    store.close()


def test_the_floor_is_that_of_the_file_that_keeps_least(tmp_path: Path) -> None:
    """Here the only one with changes for so long that others are not old yet."""
    kept = made(tmp_path, retention="1h")
    commit(kept, 1)
    kept.clock.advance(3_700_000)
    writer = kept.writer()
    writer.submit(delivery(change(written_us=2, of=(1, 1), total=2)), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    history = kept.history()
    floors = [part.floor() for part in history.file.parts]
    removed = [part.removed() for part in history.file.parts]
    assert min(floors) < history.file.floor() == max(floors)
    assert min(removed) < history.file.removed() == max(removed)
    history.close()
    with pytest.raises(HistoryTruncatedError):
        events(kept)
