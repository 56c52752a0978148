"""Rows of Spark that a task delivers to a sink, without Spark."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from headrace.connector.replay.frames.sink_writer import Delivered, SinkWriter
from headrace.connector.replay.frames.sources import SinkTarget
from headrace.connector.stores import TableCounts
from headrace.plugins import ConfigError

COLUMNS = StructType(
    [
        StructField("table", StringType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)


@pytest.fixture
def job(tmp_path: Path) -> str:
    """Return a job into a file."""
    path = tmp_path / "job.yaml"
    sink = {"plugin": "files", "path": "out.jsonl"}
    source = {"plugin": "files", "path": "in/*.jsonl"}
    path.write_text(json.dumps({"job": "j", "state": "s.db", "source": source, "sink": sink}))
    return str(path)


def test_a_tasks_rows_are_delivered(job: str) -> None:
    """A task ends when its rows are settled, and returns their number."""
    writer = SinkTarget({"job": job}).writer(COLUMNS, overwrite=False)
    rows = pa.RecordBatch.from_pydict(
        {"table": ["t", "t"], "key": [b"a", b"b"], "value": [b"1", b"2"]}
    )

    delivered = Delivered({"t": TableCounts(delivered=4)})
    assert delivered == writer.write(iter([rows, rows]))
    assert "1\n2\n1\n2\n" == (Path(job).parent / "out.jsonl").read_text()
    writer.commit([delivered])


def test_refused_records_fail_the_query(job: str) -> None:
    """Commit fails with the records that the sink rejected permanently."""
    with pytest.raises(Exception, match="2 records were refused"):
        SinkWriter({"job": job}).commit(
            [Delivered({}), Delivered({"t": TableCounts(delivered=1, dead_lettered=2)})]
        )


def test_unknown_options(job: str) -> None:
    """Unknown options are refused, not ignored."""
    with pytest.raises(ConfigError, match=r"operations: is not an option of headrace\.sink"):
        SinkWriter({"job": job, "operations": "UPDATE"})
