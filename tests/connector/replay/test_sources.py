"""What Spark's readers do before and after Spark: options, push-down, partitions, batches."""

import datetime as dt
import json
import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, LessThanOrEqual, Not
from pyspark.sql.types import StructType

import pyspark_headrace_segments
from headrace.connector.replay.columns import ARROW_SCHEMA, SPARK_SCHEMA
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.sources import SegmentReader, SegmentSource, narrowed
from headrace.plugins import ConfigError

MOMENT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
MOMENT_US = 1_769_860_800_000_000


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
    """The module that Spark looks for has the source."""
    assert SegmentSource is pyspark_headrace_segments.DefaultSource
    assert "headrace.segments" == SegmentSource.name()


def test_schemas_are_one() -> None:
    """The columns have the same names and order in Spark's words and in Arrow's."""
    names = [part.split()[0].strip("`") for part in SPARK_SCHEMA.split(", ")]

    assert ARROW_SCHEMA.names == names


def test_partitions_travel(job: str) -> None:
    """Each split is a task; a partition that was pickled reads the same records."""
    reader = SegmentSource({"job": job, "format": "json"}).reader(StructType())
    partitions = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 (our own)

    rows = [row for p in partitions for batch in reader.read(p) for row in batch.to_pylist()]

    assert 2 == len(partitions)
    assert [1, 1, 2, 2] == sorted(json.loads(row["value"])["id"] for row in rows)


@pytest.mark.parametrize(
    ("pushed", "selection"),
    [
        (EqualTo(("table",), "ks.t"), Selection(tables=frozenset({"ks.t"}))),
        (In(("operation",), ("INSERT",)), Selection(operations=frozenset({"INSERT"}))),
        (
            GreaterThan(("write_time",), MOMENT),
            Selection(from_us=MOMENT_US + 1, to_us=(1 << 63) - 1),
        ),
        (
            LessThanOrEqual(("write_time",), MOMENT),
            Selection(from_us=-(1 << 63), to_us=MOMENT_US + 1),
        ),
        (EqualTo(("node",), "n1"), None),
        (Not(EqualTo(("table",), "ks.t")), None),
    ],
)
def test_push_down(pushed: Filter, selection: Selection | None) -> None:
    """A selection takes what it can express of what Spark pushes down."""
    assert selection == narrowed(Selection(), pushed)


def test_filters_that_exclude_each_other_are_left_to_spark(job: str) -> None:
    """Two tables at once are none: the second filter goes back, as the same object."""
    reader = SegmentReader({"job": job})
    second = EqualTo(("table",), "b")

    assert [second] == list(reader.pushFilters([EqualTo(("table",), "a"), second]))
    assert Selection(tables=frozenset({"a"})) == reader.selection


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ".", "format": "xml"}, "format: 'xml' is none here"),
        ({"path": ".", "format": "none"}, "format: 'none' is none here"),
        ({"path": ".", "table": "a.b", "tables": "a.b"}, "table: stands alone"),
        ({"path": ".", "table": "a.b", "format": "mutations"}, "table: stands alone"),
        ({}, "path: is required, or `job`"),
        ({"path": "/nowhere/at/all"}, "path: /nowhere/at/all: No such file"),
        ({"path": "/", "pth": "x"}, "pth: is no option of headrace.segments"),
        ({"path": "/", "from": "noon"}, "from: expected a time"),
    ],
)
def test_wrong_options(options: dict[str, str], message: str) -> None:
    """A mistake in the options is named before anything is read."""
    with pytest.raises(ConfigError, match=message):
        SegmentReader(options)
