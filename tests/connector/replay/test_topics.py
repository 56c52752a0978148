"""Rows of Spark and what a sink wrote, in both directions, without Spark."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import pyspark_headrace_sink
import pyspark_headrace_table
import pyspark_headrace_topic
from headrace.connector.replay.columns import encoded_rows, record_batch
from headrace.connector.replay.streaming import Delivered
from headrace.connector.replay.topics import SinkTarget, SinkWriter
from headrace.connector.stores import TableCounts
from headrace.plugins import ConfigError, EncodedRecords

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


def test_spark_finds_them() -> None:
    """Each has the module that Spark looks for."""
    modules = (pyspark_headrace_sink, pyspark_headrace_table, pyspark_headrace_topic)

    assert ["headrace.sink", "headrace.table", "headrace.topic"] == [
        module.DefaultSource.name() for module in modules
    ]


def test_rows_are_records() -> None:
    """What was made columns of is made of them again."""
    header = (("schemaId", b"id"),)
    records = EncodedRecords([b"k", None], [b"v", b"w"], [header, ()], ["t", "u"])

    assert records == encoded_rows(record_batch(records))


def test_a_tasks_rows_are_delivered(job: str) -> None:
    """A task ends when its rows are settled, and says how many there were."""
    writer = SinkTarget({"job": job}).writer(COLUMNS, overwrite=False)
    rows = pa.RecordBatch.from_pydict(
        {"table": ["t", "t"], "key": [b"a", b"b"], "value": [b"1", b"2"]}
    )

    delivered = Delivered({"t": TableCounts(delivered=4)})
    assert delivered == writer.write(iter([rows, rows]))
    assert "1\n2\n1\n2\n" == (Path(job).parent / "out.jsonl").read_text()
    writer.commit([delivered])


def test_refused_records_fail_the_query(job: str) -> None:
    """What a sink refused for good is told by the commit."""
    with pytest.raises(Exception, match="2 records were refused"):
        SinkWriter({"job": job}).commit(
            [Delivered({}), Delivered({"t": TableCounts(delivered=1, dead_lettered=2)})]
        )


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_cannot_be_written(job: str, *, overwrite: bool) -> None:
    """Columns must be there, and nothing is overwritten."""
    fields = COLUMNS if overwrite else StructType(COLUMNS.fields[:2])

    with pytest.raises(ConfigError, match="columns"):
        SinkTarget({"job": job}).writer(fields, overwrite=overwrite)
