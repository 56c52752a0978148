"""Queries return the changes of a range in their order, each once, with images of their rows."""

import gc
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.history.arrival import ms_of, time_text
from headrace.connector.history.config import SCOPES
from headrace.connector.history.errors import HistoryTruncatedError, ImageNotKeptError, QueryError
from headrace.connector.history.query import Event, Query, operations_of
from headrace.connector.history.reading import History
from headrace.connector.history.sink import HistorySink
from headrace.connector.history.store.places import made as make
from headrace.plugins import Operation, parse_config
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import Kept, beside, fill, of_table
from helpers.histories.oracle import Oracle, changes
from helpers.recordings.batches import recorded_batches
from helpers.settings.filled import filled
from helpers.settings.seeds import soaked

RECORDINGS = ("4.1-ops", "5.0-types", "6.0-v9-random", *soaked("5.0-random"))
PER_COMMIT = 50
EMPTY = {"seed": "empty", "retention": "9d"}
STEPS = {"per_commit": 50, "step_ms": 7}
ALL_BUT_LATEST = frozenset({"change", "pre", "post"})
WIDE = (Operation.DELETE_RANGE, Operation.DELETE_PARTITION)


def kept(folder: Path, name: str, table: str, **options: str) -> Kept:
    """Return the history of a recorded table, with several commits in a millisecond."""
    made = Kept(DrivenClock(), **beside(folder, table=table, **EMPTY) | options)
    batches = [of_table(batch, table) for batch in recorded_batches(name)]
    fill(made, batches, per_commit=PER_COMMIT, step_ms=0)
    made.clock.advance(60_000)
    return made


def everything(history: History, query: Query | None = None) -> list[Event]:
    """Return the events of all pages."""
    wanted = query or Query(from_ms=0, limit=1_000)
    return [event for page in history.pages(wanted) for event in page.events]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "each_store"),
    [*((name, "file") for name in RECORDINGS), ("4.1-ops", "tables")],
    indirect=["each_store"],
)
@pytest.mark.usefixtures("each_store")
def test_images_are_what_select_shows(name: str, tmp_path: Path) -> None:
    """Before and after each change of recorded random workloads, and now; and each comes once."""
    count = 0
    for number, (table, mine) in enumerate(changes(name).items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = kept(folder, name, table)
        now_s = made.clock.wall_ms() // 1_000
        history = made.history()
        events = everything(history)
        history.close()
        oracle, last = Oracle(mine[0].table), Oracle(mine[0].table)
        for change in mine:
            last.add(change)
        assert len(mine) == len(events)
        for change, event in zip(mine, events, strict=True):
            at_s = event.time_ms // 1_000
            pre = oracle.image(change, event, at_s)
            oracle.add(change)
            operation = change.operation
            if operation is Operation.DELETE_PARTITION and not change.table.clustering:
                operation = Operation.DELETE  # Such a partition is a row.
            assert (operation, change.timestamp_us) == (event.operation, event.written_us)
            if event.operation in WIDE:
                continue
            assert pre == event.pre, (event.key, event.operation)
            if event.operation is not Operation.DELETE:
                assert oracle.image(change, event, at_s) == event.post
            assert last.image(change, event, now_s) == event.latest
            assert not event.partial
            count += 1
    assert count > 100


def documents(events: Sequence[Event]) -> list[str]:
    """Return events as text, all of them."""
    return [json.dumps([e.arrival, e.key, e.written_us, e.json_document()]) for e in events]


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Return the history of a table with many changes, several hundred in one millisecond."""
    return kept(tmp_path_factory.mktemp("ops"), "4.1-ops", "hazel_patient.onyx_walnut")


def spread(folder: Path, **options: str) -> Kept:
    """Return the history of that table, whose commits are 7 ms apart."""
    table = "hazel_patient.onyx_walnut"
    made = Kept(DrivenClock(), **beside(folder, table=table, **EMPTY) | options)
    batches = [of_table(batch, table) for batch in recorded_batches("4.1-ops")]
    fill(made, batches, per_commit=20, step_ms=7)
    made.clock.advance(60_000)
    return made


@pytest.mark.usefixtures("each_store")
@pytest.mark.usefixtures("each_store")
def test_a_history_that_was_made_just_now_is_empty(tmp_path: Path) -> None:
    """A reader may come between the store and what its worker first notes in it."""
    clock, given = DrivenClock(), beside(tmp_path, table="shop.orders")
    config = parse_config(HistorySink.config_class, given)
    store = make(
        config.place, clock, table="shop.orders", buckets=8, files=1, retention_ms=3_600_000
    )
    for scopes in (frozenset({"change"}), frozenset(SCOPES)):
        history = History(store, scopes, clock)
        assert [] == history.select(Query(from_ms=0)).events
        assert [] == history.select(Query(from_ms=0), settles=False).events
    store.close()


def test_adjacent_ranges_have_each_change_once(tmp_path: Path) -> None:
    """However the time is cut, the ranges together are the whole (HQ-1)."""
    made = spread(tmp_path)
    history = made.history()
    whole = documents(everything(history))
    now_ms = made.clock.wall_ms()
    dice = random.Random(1)  # noqa: S311 (any cuts)
    for _ in range(5):
        first = now_ms - 61_000
        cuts = sorted({dice.randint(first, now_ms) for _ in range(6)})
        bounds = [0, *cuts, now_ms]
        parts = [
            everything(history, Query(from_ms=begin, to_ms=end, limit=17))
            for begin, end in pairwise(bounds)
        ]
        assert whole == documents([event for part in parts for event in part])
    history.close()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("limit", "descending"),
    [
        *((1, True), (49, False), (50, True), (51, False), (1_000, True)),
        *soaked((1, False), (49, True), (50, False), (51, True), (1_000, False)),
    ],
)
def test_pages_do_not_depend_on_their_size(ops: Kept, limit: int, *, descending: bool) -> None:
    """Also with hundreds of changes in one millisecond, in both directions (HQ-8)."""
    history = ops.history()
    whole = documents(everything(history))
    query = Query(from_ms=0, limit=limit, descending=descending)
    found = documents(everything(history, query))
    history.close()
    assert whole == (found[::-1] if descending else found)


@pytest.mark.usefixtures("each_store")
def test_a_closed_range_stays_the_same(tmp_path: Path) -> None:
    """Read twice, also after the file was opened again and more came, it is equal (HQ-2)."""
    made = spread(tmp_path)
    history = made.history()
    middle = Query(from_ms=0, to_ms=made.clock.wall_ms() - 60_100, scopes=ALL_BUT_LATEST)
    before = documents(everything(history, middle))
    history.close()
    fill(made, [of_table(recorded_batches("4.1-ops")[0], made.sink.config.table)], **STEPS)
    history = made.history()
    assert before == documents(everything(history, middle))
    assert len(everything(history)) > len(before) > 0
    history.close()


def test_arrivals_ascend_and_keys_keep_their_order(ops: Kept) -> None:
    """Arrivals are strictly increasing; the changes of each key come as they agreed (HQ-4)."""
    history = ops.history()
    events = everything(history)
    history.close()
    arrivals = [event.arrival for event in events]
    assert sorted(set(arrivals)) == arrivals
    expected = [change.timestamp_us for change in changes("4.1-ops")[ops.sink.config.table]]
    assert expected == [event.written_us for event in events]


@pytest.mark.usefixtures("each_store")
def test_the_image_after_a_change_is_the_one_before_the_next(tmp_path: Path) -> None:
    """For each row without TTL, deletions of many rows aside (HQ-5)."""
    made = spread(tmp_path, expand_deletes="true")
    history = made.history()
    after: dict[str, Any] = {}
    chained = 0
    for event in everything(history):
        if event.operation in WIDE:
            after.pop(json.dumps([event.key, True]), None)  # Of the static row nothing is derived.
            continue
        row = json.dumps([event.key, event.static])
        if row in after:
            chained += 1
            assert after[row] == event.pre, row
        after[row] = event.post or {}
    history.close()
    assert chained > 20


@pytest.mark.usefixtures("each_store")
def test_rows_that_a_range_removed_are_events_on_request(tmp_path: Path) -> None:
    """They are those that a SELECT before shows and one after does not, with their images."""
    made = spread(tmp_path, expand_deletes="true")
    history = made.history()
    events = everything(history)
    history.close()
    mine = iter(changes("4.1-ops")[made.sink.config.table])
    oracle = Oracle(next(iter(changes("4.1-ops")[made.sink.config.table])).table)
    gone: list[str] = []
    removed = 0
    for event in events:
        if event.derived:
            assert (Operation.DELETE, None) == (event.operation, event.post)
            removed += 1
            gone.remove(json.dumps([event.key, event.pre]))
            continue
        assert not gone
        change, at_s = next(mine), event.time_ms // 1_000
        before = oracle.rows(change, at_s)
        oracle.add(change)
        if event.operation in WIDE:
            after = oracle.rows(change, at_s)
            gone = [row for row in before if row not in after]
    assert not gone
    assert removed > 5


@pytest.mark.usefixtures("each_store")
def test_what_was_removed_cannot_be_asked_for(tmp_path: Path) -> None:
    """A query that begins before it fails and names the first time that is kept (HQ-9)."""
    made = spread(tmp_path, retention="1h")
    made.clock.advance(3_600_000 - 60_000)
    history = made.history()
    whole = everything(history)
    made.clock.advance(90_000)
    batch = of_table(recorded_batches("4.1-ops")[0], made.sink.config.table)
    fill(made, [batch], per_commit=1_000, step_ms=0)
    made.clock.advance(1)
    floor_ms = ms_of(history.file.floor())
    assert 0 <= made.clock.wall_ms() - 1 - 3_600_000 - floor_ms <= 120_000  # Windows.
    with pytest.raises(HistoryTruncatedError, match=time_text(floor_ms)):
        history.select(Query(from_ms=floor_ms - 1))
    left = everything(history, Query(from_ms=floor_ms))
    history.close()
    assert whole
    assert len(batch.encoded) == len(left)


def test_images_say_what_they_do_not_know(tmp_path: Path) -> None:
    """Of rows that may be older than the history, they have only columns that were seen (HQ-10).

    A row that was deleted since is known whole.
    """
    (tmp_path / "b").mkdir()
    histories = spread(tmp_path).history(), spread(tmp_path / "b", seed="none").history()
    some = whole = 0
    for exact, known in zip(*map(everything, histories), strict=True):
        if exact.operation in WIDE:
            continue
        for image, seen in ((exact.pre, known.pre), (exact.post, known.post)):
            assert (image is None) == (seen is None)
            if image is not None and seen is not None:
                some += known.partial and seen != image
                whole += not known.partial
                assert seen.items() <= image.items() if known.partial else seen == image
    for history in histories:
        history.close()
    assert some > 20
    assert whole > 20


@pytest.mark.parametrize(
    ("buckets", "each_store"),
    [*((count, "file") for count in (1, 3, 1024)), (3, "tables")],
    indirect=["each_store"],
)
@pytest.mark.usefixtures("each_store")
def test_buckets_do_not_change_the_order_of_a_key(tmp_path: Path, buckets: int) -> None:
    """Each key is in one bucket, and its changes are in their order there (HQ-12)."""
    made = spread(tmp_path, buckets=str(buckets))
    history = made.history()
    whole = everything(history)
    by_bucket = [
        everything(history, Query(from_ms=0, limit=1_000, partitions=frozenset({number})))
        for number in sorted({event.partition_id for event in whole})
    ]
    history.close()
    places: dict[str, set[int]] = {}
    for event in whole:
        key = json.dumps([event.key["a"], event.key["b"]])
        places.setdefault(key, set()).add(event.partition_id)
    assert all(len(found) == 1 for found in places.values())
    for part in by_bucket:
        assert [e.arrival for e in part] == sorted(e.arrival for e in part)
    assert sum(map(len, by_bucket)) == len(whole)
    assert len(by_bucket) == min(buckets, len({p for found in places.values() for p in found}))


def test_a_query_can_name_a_key(ops: Kept) -> None:
    """The whole of it, the partition, or single columns: what remains is what a filter leaves."""
    history = ops.history()
    whole = everything(history)
    sample = next(event for event in whole if len(event.key) == 5)
    for names in (["a", "b"], ["a"], ["c", "d"], list(sample.key)):
        key = {name: sample.key[name] for name in names}
        found = everything(history, Query(from_ms=0, limit=7, key=key))
        expected = [event for event in whole if key.items() <= event.key.items()]
        assert documents(expected) == documents(found)
        assert found
    with pytest.raises(QueryError, match="v1: cannot be compared"):
        history.select(Query(from_ms=0, key={"v1": 1}))
    history.close()


def test_a_query_can_name_operations_and_write_times(ops: Kept) -> None:
    """Both are what a filter leaves."""
    history = ops.history()
    whole = everything(history)
    times = sorted(event.written_us for event in whole)
    begin, end = times[len(times) // 4], times[len(times) // 2]
    wanted = (Operation.DELETE, Operation.DELETE_RANGE)
    numbers = operations_of(wanted, "op")
    query = Query(from_ms=0, limit=13, operations=numbers, written_from_us=begin, written_to_us=end)
    found = everything(history, query)
    history.close()
    expected = [e for e in whole if e.operation in wanted and begin <= e.written_us < end]
    assert documents(expected) == documents(found)
    assert found


def test_images_that_were_not_kept_are_refused(tmp_path: Path) -> None:
    """The error names the time in which they were not; the change itself is always there."""
    made = spread(tmp_path, include="change")
    switched_ms = made.clock.wall_ms()
    made.sink = HistorySink(
        replace(made.sink.config, include=("change", "post")), made.sink.context
    )
    made.sink.open().close()
    fill(made, [of_table(recorded_batches("4.1-ops")[0], made.sink.config.table)], **STEPS)
    made.clock.advance(1)
    history = made.history()
    with pytest.raises(ImageNotKeptError, match=f"beginning to {time_text(switched_ms)}"):
        history.select(Query(from_ms=0))
    kept_since = everything(history, Query(from_ms=switched_ms))
    assert all(e.post is not None for e in kept_since if e.operation is Operation.INSERT)
    change_only = Query(from_ms=0, limit=1_000, scopes=frozenset({"change"}))
    assert len(everything(history, change_only)) > len(kept_since) > 0
    history.close()


def test_a_token_belongs_to_its_order(ops: Kept) -> None:
    """One of the other direction, or no token, is refused."""
    history = ops.history()
    token = history.select(Query(from_ms=0, limit=1)).token
    for wrong in (token.replace(">", "<"), "x", ""):
        query = Query(from_ms=0, after=wrong)
        if wrong:
            with pytest.raises(QueryError, match="token"):
                history.select(query)
    history.close()


def test_events_are_nothing_that_python_searches_for_cycles(ops: Kept) -> None:
    """Nor are their images: a search through each thousand events took a third of a query."""
    history = ops.history()
    found = everything(history, Query(from_ms=0, limit=1_000, scopes=frozenset({"pre", "post"})))
    assert not any(map(gc.is_tracked, filled(found)))
    images = [image for each in found for image in (each.pre, each.post) if image is not None]
    plain = [each for each in images if not any(isinstance(v, dict | list) for v in each.values())]
    assert not any(map(gc.is_tracked, filled(plain)))
    history.close()
