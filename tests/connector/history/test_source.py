"""A history is a source: its changes in the order of arrival, each with images of its row."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.history.errors import (
    HistoryMissingError,
    HistoryTruncatedError,
    ImageNotKeptError,
)
from headrace.connector.history.query import Event, Query
from headrace.connector.history.reading import History
from headrace.connector.history.rendering import Shape
from headrace.connector.history.source import HistorySource
from headrace.connector.serde.codecs.avro import AvroCodec
from headrace.connector.serde.codecs.records import reader_of
from headrace.plugins import (
    Batch,
    ConfigError,
    Demand,
    EncodedRecords,
    Idle,
    NumberPosition,
    Operation,
    Record,
    RecordSchema,
    parse_config,
)
from headrace.plugins.testing import SourceDriver, SourceSuite
from headrace.plugins.testing.capability_suites import RelocationSuite
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.plugins.testing.source_suite import LARGE, exhaust
from helpers.histories.kept import FOREVER_MS, Kept, beside, fill, of_table, settled
from helpers.histories.plain_fold import add
from helpers.histories.rows import TABLE, change, delivery
from helpers.recordings.batches import recorded_batches
from helpers.settings.seeds import soaked

pytestmark = pytest.mark.usefixtures("each_store")

RECORDINGS = ("4.1-ops", "5.0-types", "6.0-v9-random", *soaked("5.0-random"))
IMAGES = frozenset({"pre", "post"})


def source(path: Path | str, **options: Any) -> HistorySource:  # noqa: ANN401 (of the source)
    """Return the source over the history in a file."""
    given = {"path": str(path)} | options
    return HistorySource(parse_config(HistorySource.config_class, given), context())


def write(kept: Kept, *changes: Mapping[str, Any]) -> None:
    """Commit *changes*, a millisecond after what is there."""
    writer = kept.writer()
    writer.submit(delivery(*changes), settled)
    kept.clock.advance(1)
    assert writer.commit({}, FOREVER_MS)
    writer.close()


def read(made: HistorySource, behind: int | None = None) -> list[Record]:
    """Return all records behind an arrival."""
    resume = None if behind is None else NumberPosition(behind)
    batches = exhaust([made.open(made.plan()[0], resume)], LARGE)
    return [record for batch in batches for record in batch.records()]


class HistoryDriver(SourceDriver):
    """A history of five changes."""

    def __init__(self, folder: Path) -> None:
        """Fill it."""
        self._kept = Kept(DrivenClock(), **beside(folder, table=TABLE, seed="empty"))
        for number in range(5):
            write(self._kept, change(written_us=number, note=str(number)))

    def source(self) -> HistorySource:
        """Return a source over it."""
        return source(self._kept.sink.config.path)

    def grow(self) -> int:
        """Commit one change."""
        write(self._kept, change(written_us=9, note="more"))
        return 1

    def encoded(self, encoding: str, batch: Batch) -> EncodedRecords:
        """Return what the codec makes of the records."""
        assert encoding == "avro"
        return AvroCodec().encode(batch)


class TestHistorySource(SourceSuite, RelocationSuite):
    """It obeys the contract."""

    @pytest.fixture
    def driver(self, tmp_path: Path) -> SourceDriver:
        """Return the driver."""
        return HistoryDriver(tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "each_store"),
    [*((name, "file") for name in RECORDINGS), ("4.1-ops", "tables")],
    indirect=["each_store"],
)
def test_images_say_what_select_says(tmp_path: Path, name: str) -> None:
    """An image is what an INSERT of the row would write: folded alone, it is the image of SELECT.

    Before it, a record has the bytes of its change as they came.
    """
    batches = recorded_batches(name)
    seen = 0
    for number, table in enumerate(sorted({each.table for b in batches for each in b.schemas()})):
        options = beside(tmp_path, table=table, seed="empty", retention="9d")
        kept = Kept(DrivenClock(), **options | {"path": str(tmp_path / f"{number}.db")})
        deliveries = [of_table(batch, table) for batch in batches]
        fill(kept, deliveries, per_commit=50, step_ms=7)
        kept.clock.advance(60_000)
        made = source(kept.sink.config.path)
        encoded = [
            batch.encode("avro") for batch in exhaust([made.open(made.plan()[0], None)], LARGE)
        ]
        values = [value for each in encoded for value in each.values]
        given = [value for each in deliveries for value in each.encoded.values]
        assert given == [v[: len(one)] for v, one in zip(values, given, strict=True)]
        for record, event in zip(read(made), everything(kept.history()), strict=True):
            seen += agree(record, event)
    assert seen > 50


def agree(record: Record, event: Event) -> int:
    """Compare the images of a record with those of SELECT; return how many there are."""
    pre, post = record.value["pre"], record.value["post"]
    if event.operation in (Operation.DELETE_RANGE, Operation.DELETE_PARTITION):
        assert (None, None) == (pre, post)
        return 0
    assert (event.pre or {}) == rendered(record, event, pre)
    if event.operation is Operation.DELETE:
        assert post is None
    else:
        assert (event.post or {}) == rendered(record, event, post)
    return (pre is not None) + (post is not None)


def everything(history: History) -> Iterator[Event]:
    """Yield the events of a history, with images."""
    for page in history.pages(Query(from_ms=0, scopes=IMAGES, limit=1_000)):
        yield from page.events


@lru_cache
def shape_of(schema: RecordSchema) -> Shape:
    """Return the shape of a schema, which records share."""
    return Shape(schema)


def rendered(record: Record, event: Event, image: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the columns that an image has, as a query shows them."""
    if image is None:
        return {}
    shape = shape_of(record.schema)
    keys = {*shape.view.key, *shape.view.clustering}
    assert image["payload"].keys() >= keys
    is_static = record.value["isStatic"]
    written = [name for name in image["knownFields"] if image["payload"][name] is not None]
    expires = dict(zip(image["knownFields"], image["expires"], strict=True))
    notes = [
        {
            "field": name,
            "timestampMicros": None,
            "ttl": 1,
            "expires": expires[name],
            "isEmpty": False,
        }
        for name in written
        if expires[name] is not None
    ]
    made = {
        **record.value,
        "operationType": "INSERT",
        "expires": None,
        "payload": image["payload"],
        "updateFields": written,
        "cells": notes,
    }
    state = add(None, made)
    at_s = event.time_ms // 1_000
    partition = [image["payload"][name] for name in shape.view.key]
    if is_static:
        found = shape.static(partition, state, at_s)
    else:
        clustering = [image["payload"][name] for name in shape.view.clustering]
        found = shape.row((partition, clustering), state, None, at_s)
    known = {shape.view.names[name] for name in image["knownFields"]}
    return {name: value for name, value in (found or {}).items() if name in known}


@pytest.mark.parametrize(("images", "expected"), [("pre", ["pre"]), ("post", ["post"])])
def test_one_image_alone(tmp_path: Path, images: str, expected: Sequence[str]) -> None:
    """`images` says which there are."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty"))
    write(kept, change(written_us=1, note="a"))
    (record,) = read(source(kept.sink.config.path, images=images))

    fields = [field["name"] for field in record.schema.value["fields"]]
    assert expected == fields[-1:]
    assert expected == [name for name in record.value if name in IMAGES]


def test_a_row_that_a_range_removed_is_a_deletion_of_its_own(tmp_path: Path) -> None:
    """With `expand_deletes` its key and its image are the row's."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty", expand_deletes="true"))
    write(kept, change(written_us=1, of=(1, 5), note="a"))
    write(kept, change("DELETE_RANGE", written_us=2, of=(1,), between=(1, 9)))
    _, wide, row = read(source(kept.sink.config.path))

    assert ("DELETE_RANGE", None) == (wide.value["operationType"], wide.value["pre"])
    assert ("DELETE", 5) == (row.value["operationType"], row.value["payload"]["at"])
    assert "a" == row.value["pre"]["payload"]["note"]
    assert (None, None) == (row.value["post"], row.value["range"])


def test_a_deletion_has_no_image_after_it(tmp_path: Path) -> None:
    """Also if it came too late to delete anything."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty"))
    write(kept, change(written_us=5, note="a"), change("DELETE", written_us=4))
    _, late = read(source(kept.sink.config.path))

    assert "a" == late.value["pre"]["payload"]["note"]
    assert late.value["post"] is None


def test_a_row_of_unknown_past_says_what_is_known(tmp_path: Path) -> None:
    """Columns that were never seen are not among the known ones."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE))
    write(kept, change("UPDATE", written_us=1, note="a"))
    (record,) = read(source(kept.sink.config.path))

    assert [] == record.value["pre"]["knownFields"]
    assert ["note"] == record.value["post"]["knownFields"]


def test_changes_that_were_removed_unread_end_it(tmp_path: Path) -> None:
    """The error names the time from which all changes are kept."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty", retention="1m"))
    write(kept, change(written_us=1, note="a"), change(written_us=2, note="b"))
    made = source(kept.sink.config.path)
    first = made.open(made.plan()[0], None).read(Demand(records_max=1))
    assert isinstance(first, Batch)
    kept.clock.advance(90_000)
    write(kept, change(written_us=3, note="c"))

    with pytest.raises(HistoryTruncatedError, match="were removed"):
        made.open(made.plan()[0], first.end).read(LARGE)
    assert ["c"] == [record.value["payload"]["note"] for record in read(made)]


def test_a_quiet_history_can_outlive_its_changes(tmp_path: Path) -> None:
    """A reader that has read all that was removed continues."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty", retention="1m"))
    write(kept, change(written_us=1, note="a"))
    made = source(kept.sink.config.path)
    reader = made.open(made.plan()[0], None)
    assert isinstance(reader.read(LARGE), Batch)
    kept.clock.advance(90_000)
    write(kept, change(written_us=2, note="b"))

    (batch,) = exhaust([reader], LARGE)
    assert ["b"] == [record.value["payload"]["note"] for record in batch.records()]
    assert isinstance(reader.read(LARGE), Idle)


def test_images_must_have_been_kept(tmp_path: Path) -> None:
    """A time in which they were not is an error that names it; a later start is none."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, include="change"))
    write(kept, change(written_us=1, note="a"))
    kept = Kept(kept.clock, **beside(tmp_path, table=TABLE))
    begin_ms = kept.clock.wall_ms()
    write(kept, change(written_us=2, note="b"))
    made = source(kept.sink.config.path)

    with pytest.raises(ImageNotKeptError, match="was not kept from the beginning to"):
        read(made)
    at = made.locate(made.plan()[0], None, "latest")
    assert isinstance(at, NumberPosition)
    assert [] == read(made, at.number)
    assert at.number >> 20 >= begin_ms


def test_another_table_is_refused(tmp_path: Path) -> None:
    """The message names the history's table."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE))
    with pytest.raises(ConfigError, match=f"is the history of {TABLE}"):
        source(kept.sink.config.path, tables=("shop.items",)).plan()
    assert source(kept.sink.config.path, tables=(TABLE,)).plan()


def test_there_is_no_history_yet(tmp_path: Path) -> None:
    """The plan names the file."""
    with pytest.raises(HistoryMissingError, match=r"history\.db"):
        source(tmp_path / "history.db").plan()


def test_what_one_image_alone_cannot_say(tmp_path: Path) -> None:
    """The schema of a change with images has an id of its own: both can be in one registry."""
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty"))
    write(kept, change(written_us=1, note="a"))
    ids: set[bytes] = set()
    for images in ("pre", "post", "both"):
        made = source(kept.sink.config.path, images=images)
        (batch,) = exhaust([made.open(made.plan()[0], None)], LARGE)
        (schema,) = batch.schemas()
        reader_of(schema.value)(batch.encode("avro").values[0])
        ids.add(schema.schema_id)
    (without,) = kept.history().file.schemas().values()

    assert 4 == len(ids | {without.schema_id})
