"""Spark's reader of histories without Spark: options, partitions, batches."""

import datetime as dt
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

import pyspark_headrace_history
from headrace.connector.history.arrival import time_text, us_of
from headrace.connector.history.client import connect
from headrace.connector.history.errors import (
    HistoryMissingError,
    HistoryTruncatedError,
    ImageNotKeptError,
    QueryError,
)
from headrace.connector.replay.frames.histories import CHANGES_PER_TASK
from headrace.connector.replay.frames.sources import HistorySource
from headrace.plugins import ConfigError
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories import places
from helpers.histories.kept import FOREVER_MS, Kept, beside, fill, recorded_history, settled
from helpers.histories.places import table_places
from helpers.histories.rows import TABLE, change, delivery
from helpers.settings.seeds import soaked

IMAGES = {"since": "2023-01-01", "include": "change,pre,post"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Return the history of a recorded table."""
    return recorded_history(tmp_path_factory.mktemp("h"))


def loaded(made: Kept, **options: str) -> HistorySource:
    """Return a frame, as Spark keeps it between queries."""
    source = HistorySource({"path": made.sink.config.place} | options)
    source.schema()
    found: HistorySource = pickle.loads(pickle.dumps(source))  # noqa: S301 (our own)
    return found


def parts(source: HistorySource) -> list[list[pa.RecordBatch]]:
    """Return the batches of each task; the reader and its partitions travel there."""
    reader = source.reader(source.schema())
    travelled = pickle.loads(pickle.dumps((reader, reader.partitions())))  # noqa: S301 (our own)
    return [list(travelled[0].read(partition)) for partition in travelled[1]]


def rows(source: HistorySource) -> pa.Table:
    """Return the rows of all tasks."""
    schema = source.plan.layout.schema
    return pa.Table.from_batches([batch for part in parts(source) for batch in part], schema)


def selected(made: Kept, since: int | str = 0, **given: Any) -> pa.Table:  # noqa: ANN401 (as the client has them)
    """Return what the client in Python returns."""
    with connect(made.sink.config.place) as client:
        return client.select(since, include=("change", "pre", "post"), **given).arrow()


def test_rows_are_those_of_the_client(kept: Kept) -> None:
    """Which are those of SELECT."""
    assert selected(kept) == rows(loaded(kept, **IMAGES))


def test_spark_finds_the_source() -> None:
    """Spark finds the source under the name of its module."""
    assert HistorySource is pyspark_headrace_history.DefaultSource
    assert "headrace.history" == HistorySource.name()


@pytest.mark.soak
@pytest.mark.parametrize("shards", [None, "7", "10000", *soaked("1", "2")])
def test_tasks_share_the_rows(kept: Kept, shards: str | None) -> None:
    """However many there are, together they have each change once, in its order."""
    wanted = selected(kept)
    source = loaded(kept, **IMAGES, **({"shards": shards} if shards else {}))
    made = parts(source)
    assert wanted == pa.Table.from_batches([batch for part in made for batch in part])
    sizes = [sum(batch.num_rows for batch in part) for part in made]
    count = min(int(shards or 1), wanted.num_rows)
    assert (count, -(-wanted.num_rows // count)) == (len(sizes), max(sizes))
    assert wanted.num_rows < CHANGES_PER_TASK


def test_a_task_reads_page_by_page(tmp_path: Path) -> None:
    """So it has no more than a page in memory."""
    made = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, include="change"))
    sent = [change(written_us=n, of=(n % 7, n)) for n in range(2_100)]
    fill(made, [delivery(*sent)], per_commit=2_100, step_ms=1)
    (part,) = parts(loaded(made, since="2023-01-01"))
    assert [1_000, 1_000, 100] == [batch.num_rows for batch in part]


def test_a_task_that_is_repeated_has_the_same_rows(kept: Kept) -> None:
    """Each batch is equal when the partition is read again, by another process."""
    source = loaded(kept, **IMAGES, shards="3")
    reader = source.reader(source.schema())
    for partition in reader.partitions():
        again = pickle.loads(pickle.dumps((reader, partition)))  # noqa: S301 (our own)
        assert list(reader.read(partition)) == list(again[0].read(again[1]))


def test_options_choose(kept: Kept) -> None:
    """Times, keys, operations, buckets and images, as the client has them."""
    everything = selected(kept)
    middle = everything.column("cdc_time")[everything.num_rows // 2].as_py().isoformat()
    chosen: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"since": middle}, {"since": middle}),
        ({"until": middle}, {"until": middle}),
        ({"operations": "insert,DELETE"}, {"operations": ("insert", "delete")}),
        ({"partitions": "1, 5"}, {"partitions": (1, 5)}),
    ]
    for options, given in chosen:
        found = rows(loaded(kept, **IMAGES | options, shards="3"))
        assert selected(kept, **given) == found
        assert 0 < found.num_rows < everything.num_rows
    assert "pre" not in loaded(kept, since="2023-01-01").schema().names


def orders(folder: Path, **options: str) -> Kept:
    """Return the history of a small table."""
    made = Kept(DrivenClock(), **beside(folder, table=TABLE, seed="empty") | options)
    sent = [change(written_us=n, of=(n % 7, n), note=str(n)) for n in range(40)]
    fill(made, [delivery(*sent)], per_commit=10, step_ms=1_000)
    return made


def test_a_key(tmp_path: Path) -> None:
    """A whole partition key, the whole key, and a part of it that no index has."""
    made = orders(tmp_path)
    for key, wanted in (
        ({"id": 3}, range(3, 40, 7)),
        ({"id": 3, "at": 10}, [10]),
        ({"at": 12}, [12]),
        ({"id": 3, "at": 11}, []),
    ):
        source = loaded(made, since="2023-01-01", key=json.dumps(key), shards="2")
        assert list(wanted) == rows(source).column("at").to_pylist()


def test_operations_choose_what_expired(tmp_path: Path) -> None:
    """By its type of event; tasks read it as it arrived with the load."""
    options = {"ttl_events": "true", "retention": "9999d"}
    made = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty", **options))
    soon_s = made.clock.wall_ms() // 1_000 + 5  # Long ago by the clock of the machine.
    sent = [change(written_us=n, of=(n, 1), expires=soon_s, note="a") for n in range(4)]
    fill(made, [delivery(*sent)], per_commit=4, step_ms=1_000)
    found = rows(loaded(made, since="2023-01-01", operations="ttl_delete", shards="2"))
    assert {0, 1, 2, 3} == {*found.column("id").to_pylist()}
    assert [("delete", True)] * 4 == [(row["op"], row["expired"]) for row in found.to_pylist()]


def test_a_history_in_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks find it by the path of the worker's file, wherever they run."""
    with table_places() as node:
        monkeypatch.chdir(tmp_path)
        node.begin(tmp_path)
        monkeypatch.setattr(places, "chosen", node)
        made = orders(tmp_path, retention="9999d")
        source = loaded(made, **IMAGES, path=made.sink.config.path, shards="3")
        wanted = selected(made)
        monkeypatch.chdir(tmp_path.parent)
        found = [sum(batch.num_rows for batch in part) for part in parts(source)]
        assert (wanted, [14, 14, 12]) == (rows(source), found)


def test_a_frame_is_as_of_its_load(tmp_path: Path) -> None:
    """What is committed later is in no query of it; also not what is committed while tasks read."""
    made = orders(tmp_path)
    source = loaded(made, since="2023-01-01", shards="3")
    wanted = rows(source)
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    found: list[pa.RecordBatch] = []
    writer = made.writer()
    for number, partition in enumerate(partitions):
        writer.submit(delivery(change(written_us=number, of=(1, 1), note="late")), settled)
        assert writer.commit({}, FOREVER_MS)
        found += reader.read(partition)
    writer.close()
    assert wanted == pa.Table.from_batches(found) == rows(source)
    now = rows(loaded(made, since="2023-01-01"))
    assert (40, 43) == (wanted.num_rows, now.num_rows)


def test_a_range_is_settled(tmp_path: Path) -> None:
    """A closed range has the same rows in every frame, also when a writer's clock is behind."""
    made = orders(tmp_path)
    closed = {"since": "2023-01-01", "until": "2024-01-01"}
    wanted = rows(loaded(made, **closed))
    assert made.clock.wall_ms() < us_of(dt.datetime(2024, 1, 1)) // 1_000  # noqa: DTZ001 (UTC)
    writer = made.writer()
    writer.submit(delivery(change(written_us=1, of=(1, 1), note="late")), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    assert wanted == rows(loaded(made, **closed))
    assert 41 == rows(loaded(made, since="2023-01-01")).num_rows


def expire(made: Kept) -> None:
    """Let retention remove all that is there."""
    made.clock.advance(3_600_000)
    fill(made, [delivery(change(written_us=1, of=(1, 1), note="late"))], per_commit=1, step_ms=1)


def test_what_retention_removed_is_an_error(tmp_path: Path) -> None:
    """In tasks that run, in a query of a frame that was loaded before, and in a new frame."""
    made = orders(tmp_path, retention="1m")
    source = loaded(made, since="2023-01-01", shards="4")
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    expire(made)
    for partition in partitions:
        with pytest.raises(HistoryTruncatedError, match="were removed"):
            list(reader.read(partition))
    with pytest.raises(HistoryTruncatedError):
        reader.partitions()
    with pytest.raises(HistoryTruncatedError, match="begin at "):
        loaded(made, since="2023-01-01")
    begin = time_text(made.clock.wall_ms() - 1_000)
    assert ["late"] == [
        each["note"] for each in rows(loaded(made, since=begin))["change"].to_pylist()
    ]


def test_images_that_are_not_kept(tmp_path: Path) -> None:
    """They are an error when the frame is loaded."""
    made = orders(tmp_path, include="change")
    with pytest.raises(ImageNotKeptError, match="the post image was not kept"):
        loaded(made, since="2023-01-01", include="post")


def test_a_history_without_changes(tmp_path: Path) -> None:
    """It has no columns yet."""
    made = Kept(DrivenClock(), **beside(tmp_path, table=TABLE))
    with pytest.raises(ConfigError, match="path: has had no change yet"):
        loaded(made, since="15m")
    with connect(made.sink.config.place) as client:
        assert 0 == client.select(0, include=("change", "post")).arrow().num_rows


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "path: is required"),
        ({"since": ""}, "since: is required"),
        ({"since": "noon"}, "since: expected a duration, found 'noon'"),
        ({"until": "noon"}, "until: expected a duration, found 'noon'"),
        ({"include": "post,latest"}, "include: a frame is as of its load"),
        ({"include": "past"}, "include: image 'past' is unknown"),
        ({"include": ","}, "include: expected names"),
        ({"key": "id=7"}, "key: expected columns, found 'id=7'"),
        ({"key": '{"note": 7}'}, "note: cannot be compared"),
        ({"operations": "upset"}, "operations: 'upset' is not an operation"),
        ({"partitions": "one"}, "partitions: expected numbers, found 'one'"),
        ({"shards": "0"}, "shards: expected 1 to 100000, found '0'"),
        ({"from": "15m"}, "from: is not an option of headrace.history"),
    ],
)
def test_wrong_options(kept: Kept, options: dict[str, str], message: str) -> None:
    """Invalid options are named before anything is read."""
    given = {"since": "2023-01-01"} | options
    source = HistorySource({"path": kept.sink.config.place} | given)
    if "" in options.values():
        source = HistorySource({k: v for k, v in source.options.items() if v})
    with pytest.raises((ConfigError, QueryError), match=message):
        source.schema()


def test_a_schema_of_a_user(kept: Kept) -> None:
    """It is refused, unless it is the history's."""
    source = HistorySource({"path": kept.sink.config.place, "since": "2023-01-01"})
    assert source.reader(from_arrow_schema(source.plan.layout.schema)).partitions()
    with pytest.raises(ConfigError, match="schema: is that of the history's table"):
        source.reader(StructType())


def test_there_must_be_a_history(tmp_path: Path) -> None:
    """A path without a file is an error."""
    with pytest.raises(HistoryMissingError):
        HistorySource({"path": str(tmp_path / "none.db"), "since": "15m"}).schema()
