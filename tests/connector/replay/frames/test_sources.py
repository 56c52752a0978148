"""Spark's readers without Spark: options, partitions, batches."""

import json
import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

import pyspark_headrace_segments
from headrace.connector.replay.columns import arrow_schema, spark_schema
from headrace.connector.replay.frames.histories import HistoryReader
from headrace.connector.replay.frames.sources import SegmentReader, SegmentSource
from headrace.connector.replay.frames.topics import TopicReader
from headrace.plugins import ConfigError
from headrace.sources.cassandra.encode.origin import ORIGIN


@pytest.fixture
def job(tmp_path: Path) -> str:
    """Return the job file of a source of files."""
    (tmp_path / "in").mkdir()
    for name in ("orders", "users"):
        (tmp_path / "in" / f"{name}.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    source = {"plugin": "files", "path": "in/*.jsonl"}
    path = tmp_path / "job.yaml"
    sink = {"plugin": "null"}
    path.write_text(json.dumps({"job": "j", "state": "s.db", "source": source, "sink": sink}))
    return str(path)


def test_spark_finds_the_source() -> None:
    """Spark finds the source under the name of its module."""
    assert SegmentSource is pyspark_headrace_segments.DefaultSource
    assert "headrace.segments" == SegmentSource.name()


def test_schemas_are_one() -> None:
    """Columns have the same names and order in Spark's types and in Arrow's."""
    names = [part.split()[0].strip("`") for part in spark_schema(arrow_schema(ORIGIN)).split(", ")]

    assert arrow_schema(ORIGIN).names == names


def test_partitions_travel(job: str) -> None:
    """Each split is a task; a pickled partition reads the same records."""
    reader = SegmentSource({"job": job, "format": "json"}).reader(StructType())
    partitions = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 (our own)

    rows = [row for p in partitions for batch in reader.read(p) for row in batch.to_pylist()]

    assert 2 == len(partitions)
    assert [1, 1, 2, 2] == sorted(json.loads(row["value"])["id"] for row in rows)


def test_no_reader_takes_filters() -> None:
    """No reader takes Spark's filters, which Spark would reuse for the next query of the frame."""
    readers = [
        each
        for each in DataSourceReader.__subclasses__()
        if each.__module__.startswith("headrace.")
    ]

    assert {HistoryReader, SegmentReader, TopicReader} <= set(readers)
    assert {DataSourceReader.pushFilters} == {each.pushFilters for each in readers}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ".", "format": "xml"}, "format: 'xml' is not possible here"),
        ({"path": ".", "format": "none"}, "format: 'none' is not possible here"),
        ({"path": ".", "table": "a.b", "tables": "a.b"}, "table: cannot be used"),
        ({"path": ".", "table": "a.b", "format": "mutations"}, "table: cannot be used"),
        ({}, "path: is required, or `job`"),
        ({"path": "/nowhere/at/all"}, "path: /nowhere/at/all: No such file"),
        ({"path": "/", "pth": "x"}, "pth: is not an option of headrace.segments"),
        ({"path": "/", "from": "noon"}, "from: expected a time"),
        ({"path": "/", "operations": "update"}, "operations: 'update' is not an operation"),
        ({"path": "/", "operations": ""}, "operations: expected names, found ''"),
        ({"path": "/", "tables": " ,"}, "tables: expected names, found ' ,'"),
        ({"path": "/", "shards": "x"}, "shards: expected 1 to 100000, found 'x'"),
        ({"path": "/", "shards": "-1"}, "shards: expected 1 to 100000, found '-1'"),
        ({"path": "/", "shard_bytes": "0"}, "shard_bytes: expected at least 1, found '0'"),
        ({"path": "/", "agreement": "no"}, "agreement: expected none, found 'no'"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    """Invalid options are named before anything is read."""
    with pytest.raises(ConfigError, match=message):
        SegmentReader(options)
