"""Spark's readers without Spark: options, partitions, batches."""

import json
import pickle
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from headrace.connector.replay.columns import arrow_schema, spark_schema
from headrace.connector.replay.frames.histories import HistoryReader
from headrace.connector.replay.frames.segment_reader import SegmentReader
from headrace.connector.replay.frames.sources import SegmentSource
from headrace.connector.replay.frames.topics import TopicReader
from headrace.plugins import ConfigError
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.settings.native_modules import ROOT

_NAMED = "import pyspark_headrace_segments, pyspark_headrace_sink"
_STREAMED = "import headrace.connector.replay.stream.streaming"
_OF_TASKS = {
    "pyarrow.compute",
    "headrace.connector.replay.columns",
    "headrace.connector.replay.delivery",
    "headrace.connector.replay.planning",
}


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


def test_spark_finds_them() -> None:
    """Spark asks the modules whose names begin so; the page gives the names to users."""
    modules = [each.name for each in iter_modules() if each.name.startswith("pyspark_headrace")]
    found = {import_module(name).DefaultSource.name() for name in modules}
    page = (ROOT / "docs" / "spark.md").read_text()

    assert found == set(re.findall(r'format\("(headrace\.\w+)"\)', page))


def test_processes_import_what_they_use() -> None:
    """What Spark asks for columns or for a stream does not import what only tasks use."""
    code = f"import sys; {_NAMED}; print(*sys.modules); {_STREAMED}; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 (ours)
    named, streamed = (set(line.split()) for line in ran.stdout.splitlines())

    assert not {each for each in named if each.startswith("headrace.connector.serde")}
    assert not {each for each in named if each.startswith("headrace.connector.control")}
    assert not streamed & _OF_TASKS


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
